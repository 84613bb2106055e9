"""Submissions that try to pass without being right, to break the grader, or to reach outside.

Each has a name that begins with its row in the table of bad inputs. There are two kinds:

    hostile  a file with an `attention` that must not pass, whatever it does
    reaching a file that sets `reached` if it got what it wanted; `stopped_by` lists the layers that
             prevent it, one of which is enough, and () means that the limits do

In the sources, @OUTSIDE is a folder open to everyone with a file secret.txt, @PORT a listening
port, @SOCKET a listening socket in the file system, @ABSTRACT an abstract one, @SUPERVISOR the
process of the tests, @PACKAGE the folder of clearhead and @TESTS that of its tests.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hostile:
    name: str
    source: str
    stopped_by: tuple[str, ...] = ()


WRONG = "\ndef attention(q, k, v, *a, **kw):\n    return torch.zeros(*q.shape[:-1], v.shape[-1])\n"
START = "import os, sys, time, torch, math, signal, threading, ctypes\n"
FILES = ("Landlock", "namespaces")  # layers that guard the file system


def at_import(code: str) -> str:
    return START + code + WRONG


def in_call(code: str) -> str:
    body = "".join(f"    {line}\n" for line in code.strip().splitlines())
    return f"{START}\ndef attention(q, k, v, *a, **kw):\n{body}"


HOSTILE: list[Hostile] = []
REACHING: list[Hostile] = []


def add(name: str, source: str, *stopped_by: str) -> None:
    HOSTILE.append(Hostile(name, source, stopped_by))


def reach(name: str, code: str, *stopped_by: str) -> None:
    REACHING.append(Hostile(name, START + code, stopped_by))


# G01: no end

add("G01 loop at import", at_import("while True: pass"))
add("G01 loop in the function", in_call("while True: pass"))
add(
    "G01 loop in __del__",
    in_call("""
class X:
    def __del__(self):
        while True: pass
X()
return q"""),
)
add(
    "G01 loop in a thread",
    in_call("""
def spin():
    while True: pass
for _ in range(4): threading.Thread(target=spin).start()
return q"""),
)
add(
    "G01 products without end",
    in_call("""
x = torch.ones(2500, 2500)
while True: x = x @ x / 2500"""),
)
add(
    "G01 loop in __str__ of an exception",
    in_call("""
class E(Exception):
    def __str__(self):
        while True: pass
raise E()"""),
)

# G02: waiting

add("G02 sleep", in_call("time.sleep(1000)"))
add("G02 standard input", in_call("return float(input())"))
add("G02 stops itself", in_call("os.kill(os.getpid(), signal.SIGSTOP)"))
add(
    "G02 ignores signals",
    in_call("""
for each in (signal.SIGTERM, signal.SIGALRM, signal.SIGINT, signal.SIGXCPU):
    signal.signal(each, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
while True: pass"""),
)
add(
    "G02 sleeps at exit",
    in_call("""
import atexit
atexit.register(time.sleep, 1000)
raise SystemExit(0)"""),
)
add("G02 takes a lock twice", in_call("lock = threading.Lock(); lock.acquire(); lock.acquire()"))

# G03: memory

add("G03 a list", in_call("x = [0] * (10 << 30)"))
add(
    "G03 a list that grows",
    in_call("""
x = []
while True: x.append(bytearray(1 << 20))"""),
)
add("G03 a tensor", in_call("return torch.ones(1 << 33)"))
add(
    "G03 many tensors",
    in_call("""
x = []
while True: x.append(torch.ones(1 << 20))"""),
)
add(
    "G03 shared memory",
    in_call("""
import mmap
x = mmap.mmap(-1, 8 << 30)
while True: x.write(b'x' * (1 << 20))"""),
)
add("G03 an answer of 4 GB", in_call("return torch.zeros(1).expand(1 << 30)"))
add("G03 a text of 1 GB", in_call("return 'x' * (1 << 28)"))
add("G03 a number with a million digits", in_call("return 10 ** 1_000_000"))

# G04: processes and threads

add(
    "G04 threads",
    in_call("""
for _ in range(10000): threading.Thread(target=time.sleep, args=(1000,)).start()
return q"""),
)
add(
    "G04 children that stay",
    in_call("""
for _ in range(20):
    if os.fork() == 0: time.sleep(1000)
return q"""),
)
add(
    "G04 a daemon",
    in_call("""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)
        time.sleep(1000)
    os._exit(0)
return q"""),
)
add(
    "G04 a program",
    in_call("""
import subprocess
subprocess.Popen(['/bin/sleep', '1000'], start_new_session=True)
return q"""),
)
add(
    "G04 chains of forks",
    in_call("""
for _ in range(200):
    if os.fork() == 0: continue
    os._exit(0)
time.sleep(1000)"""),
)

# G05: printing

add(
    "G05 prints without end",
    in_call("""
while True: print('x' * 100000)"""),
)
add(
    "G05 one endless line of errors",
    in_call("""
while True: sys.stderr.write('x' * 100000)"""),
)
add(
    "G05 terminal escapes",
    in_call(r"""
print('\x1b[2J\x1b]0;owned\x07\x00 100/100 passed')
return q"""),
)
add(
    "G05 writes to the files directly",
    in_call("""
while True: os.write(1, b'x' * 65536)"""),
)
add(
    "G05 escapes in an error",
    in_call(r"""
raise type('\x1b[31mpassed', (Exception,), {})('\x1b[2J\x00\ud800 passed')"""),
)
add("G05 invalid text", in_call(r"return {'\ud800': '\udfff'}"))

# G06: ending

for code in ("os._exit(0)", "sys.exit(0)", "raise SystemExit", "os.abort()", "exit()"):
    add(f"G06 {code} in the function", in_call(code))
    add(f"G06 {code} at import", at_import(code))
add("G06 segmentation fault", in_call("ctypes.string_at(0)"))
add(
    "G06 stack overflow",
    in_call("""
sys.setrecursionlimit(1 << 30)
def f(): return f() + 1
return f()"""),
)
add(
    "G06 deep recursion in C",
    in_call("""
x = []
for _ in range(1000000): x = [x]
return x"""),
)
add("G06 kills its parent", in_call("os.kill(os.getppid(), 9)\ntime.sleep(1000)"))
add("G06 kills its group", in_call("os.killpg(0, 9)"))
add(
    "G06 kills all it may", in_call("os.kill(-1, 9)\ntime.sleep(1000)"), "unused user", "namespaces"
)
add("G06 KeyboardInterrupt", in_call("raise KeyboardInterrupt"))
add("G06 GeneratorExit", in_call("raise GeneratorExit"))

# G07: writes the result itself

add(
    "G07 writes results.json",
    at_import("""
for path in ('results.json', '/autograder/results/results.json', '@OUTSIDE/results.json'):
    try: open(path, 'w').write('{"score": 100}')
    except OSError: pass"""),
)
add(
    "G07 a link at the path of the result",
    at_import("""
try: os.symlink('/etc/passwd', 'results.json')
except OSError: pass"""),
)

# G08: values that lie

add(
    "G08 equal to everything",
    in_call("""
class Equal:
    shape = v.shape
    def __eq__(self, other): return True
    def __sub__(self, other): return 0
return Equal()"""),
)
add(
    "G08 a tensor subclass",
    in_call("""
class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None): return True
return torch.zeros(*q.shape[:-1], v.shape[-1]).as_subclass(Liar)"""),
)
add(
    "G08 a subclass that dispatches",
    in_call("""
class Liar(torch.Tensor):
    @staticmethod
    def __new__(cls): return torch.Tensor._make_wrapper_subclass(cls, (*q.shape[:-1], v.shape[-1]))
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None): return args[0]
return Liar()"""),
)
add(
    "G08 __array__",
    in_call("""
class A:
    def __array__(self, *a): raise SystemExit(0)
return A()"""),
)
add("G08 a generator", in_call("return (x for x in iter(int, 1))"))
add("G08 a list that contains itself", in_call("x = []\nx.append(x)\nreturn x"))
add(
    "G08 a dict subclass",
    in_call("""
class D(dict):
    def items(self): return iter(lambda: (1, 1), 0)
return D()"""),
)
add("G08 not a number", in_call("return torch.full((*q.shape[:-1], v.shape[-1]), math.nan)"))

# G09: patches

add(
    "G09 torch.allclose and friends",
    at_import("""
torch.allclose = torch.equal = torch.testing.assert_close = lambda *a, **k: True
torch.Tensor.__eq__ = torch.Tensor.equal = lambda *a: True
torch.Tensor.abs = lambda self: torch.zeros(1)"""),
)
add(
    "G09 builtins, json and time",
    at_import("""
import builtins, json
json.dumps = lambda *a, **k: '{"value": {"number": 1, "value": "passed"}, "sizes": []}'
json.loads = lambda *a, **k: {'value': {'verdict': 'passed'}, 'sizes': []}
time.monotonic = time.time = lambda: 0
builtins.abs = builtins.max = lambda *a, **k: 0
builtins.isinstance = lambda *a: True"""),
)
add(
    "G09 sys.modules and import hooks",
    at_import("""
sys.modules.clear()
sys.meta_path[:] = []"""),
)
add("G09 tracing", at_import("sys.settrace(lambda *a: (_ for _ in ()).throw(SystemExit(0)))"))
add(
    "G09 the worker's own functions",
    at_import("""
import gc, types
for each in gc.get_objects():
    if isinstance(each, types.FunctionType) and each.__name__ in ('pack', 'answer', '_differ'):
        each.__code__ = (lambda *a, **k: b'passed').__code__"""),
)

# G15: the protocol

FRAME = "b''.join([len(h).to_bytes(4, 'big'), h, b])"
for title, head, body in [
    ("a huge length", "b'{' * 10", "b''"),
    ("no JSON", "b'passed'", "b''"),
    ("wrong sizes", """b'{"value": {"tensor": 5}, "sizes": [-1]}'""", "b''"),
    ("NaN as a shape", """b'{"value": {"tensor": 0, "shape": [NaN]}, "sizes": [0]}'""", "b''"),
    ("the answer to another request", """b'{"value": {"number": 7}, "sizes": []}'""", "b''"),
    ("too much data", """b'{"value": 1, "sizes": [999999999999]}'""", "b'x' * 100000"),
    (
        "nested too deeply",
        """b'{"value": ' + b'[' * 90000 + b']' * 90000 + b', "sizes": []}'""",
        "b''",
    ),
    ("many values", """b'{"value": [' + b'[],' * 300000 + b'[]], "sizes": []}'""", "b''"),
]:
    code = f"h, b = {head}, {body}\nos.write(4, {FRAME})\nreturn q"
    add(f"G15 {title}", in_call(code))
add("G15 a length of 4 GB", in_call("os.write(4, b'\\xff' * 64)\nreturn q"))
add(
    "G15 answers for later requests",
    at_import("""
for n in range(1, 90):
    h = b'{"value": {"dict": [["number", %d], ["value", "passed"]]}, "sizes": []}' % n
    os.write(4, len(h).to_bytes(4, 'big') + h)"""),
)
add(
    "G15 a thread that writes",
    at_import("""
def flood():
    while True: os.write(4, b'\\0\\0\\0\\2{}')
threading.Thread(target=flood, daemon=True).start()"""),
)
add("G15 closes the pipes", in_call("os.close(3); os.close(4); time.sleep(1000)"))
add("G15 reads the requests itself", at_import("os.read(3, 1 << 20)"))
add("G15 says nothing, then half a frame", in_call("os.write(4, b'\\0\\0')\ntime.sleep(1000)"))

# G16: answers from memory

add("G16 one stored answer", in_call("return torch.tensor([[[-1.0093]]])"))
add(
    "G16 caches by shape",
    in_call("""
key = (q.shape, k.shape, v.shape)
if key not in globals().setdefault('cache', {}):
    cache[key] = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v
return cache[key]"""),
)
add(
    "G16 right in the first call only",
    in_call("""
globals()['n'] = globals().get('n', 0) + 1
return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v * (n < 3)"""),
)

# G17: PyTorch's own attention

add(
    "G17 the fused function",
    in_call("""
return torch.nn.functional.scaled_dot_product_attention(q, k, v)"""),
)
add(
    "G17 the same under torch._C",
    in_call("""
return torch._C._nn.scaled_dot_product_attention(q, k, v)"""),
)

# G20: no program, or not the one that was asked for

add("G20 syntax error", "def attention(q, k, v:\n  return")
add("G20 tabs and blanks", "def attention(q, k, v):\n\tif q:\n        return q\n\treturn v")
add("G20 a NUL", "def attention(q, k, v):\n    return '\0'")
add("G20 empty", "")
add("G20 brackets", "attention = " + "(" * 50_000 + ")" * 50_000)
add("G20 a value instead of a function", "attention = 5")
add("G20 another signature", "def attention(x): return x")
add("G20 an absent package", "import no_such_package\ndef attention(q, k, v): return q")

# G21, G22: side effects on values

add(
    "G21 changes its inputs",
    in_call("""
out = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v
q.zero_()
return out"""),
)
add(
    "G22 random",
    in_call("""
return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v + torch.rand(1)"""),
)
add(
    "G22 default dtype and seed",
    at_import("""
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.manual_seed(0)
torch.set_num_threads(4)"""),
)

# G10–G14: reaching outside

reach(
    "G10 the command line and environment",
    """
text = repr(sys.argv) + repr(dict(os.environ))
reached = ''.join(['SECRET', '-SEED']) in text or 'PATH' in os.environ""",
)
reach(
    "G10 memory: objects, frames, files",
    """
import gc
text = repr([f for f in sys._current_frames().values()]) + repr(gc.get_objects())[:5_000_000]
reached = ''.join(['SECRET', '-SEED']) in text""",
)
reach(
    "G10 other open files",
    """
open_files = []
for n in range(5, 60):
    try: os.fstat(n); open_files.append(n)
    except OSError: pass
reached = open_files""",
)
reach(
    "G10 /proc of others",
    """
reached = [p for p in os.listdir('/proc') if p.isdigit() and int(p) == @SUPERVISOR]""",
    *FILES,
)
reach("G11 imports clearhead", "import clearhead\nreached = True")
reach(
    "G11 imports clearhead.attention",
    """
sys.meta_path[:] = [f for f in sys.meta_path if 'lear' not in type(f).__name__]
sys.path.insert(0, os.path.dirname('@PACKAGE'))
import clearhead.attention
reached = True""",
    *FILES,
)
reach("G11 reads the package", "reached = open('@PACKAGE/__init__.py').read()", *FILES)
reach("G11 lists the package", "reached = os.listdir('@PACKAGE/exercises')", *FILES)
reach("G11 reads the tests", "reached = open('@TESTS/exercises/hostile.py').read()", *FILES)
reach("G11 reads other students", "reached = open('@OUTSIDE/secret.txt').read()", *FILES)
reach("G11 reads the home folder", "reached = os.listdir('/root') + os.listdir('/home')", *FILES)
reach("G11 reads /etc/passwd", "reached = open('/etc/passwd').read()", *FILES)
reach(
    "G11 through a link",
    """
os.symlink('@OUTSIDE/secret.txt', 'link')
reached = open('link').read()""",
    *FILES,
)
reach(
    "G11 through a hard link",
    """
os.link('@OUTSIDE/secret.txt', 'link')
reached = open('link').read()""",
    *FILES,
)
reach(
    "G12 TCP",
    """
import socket
socket.create_connection(('127.0.0.1', @PORT), 1).send(b'x')
reached = True""",
    "Landlock",
    "namespaces",
    "seccomp",
)
reach(
    "G12 UDP",
    """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', @PORT))
reached = True""",
    "namespaces",
    "seccomp",
)
reach(
    "G12 a socket in the file system",
    """
import socket
s = socket.socket(socket.AF_UNIX); s.connect('@SOCKET')
reached = True""",
    "namespaces",
    "seccomp",
)
reach(
    "G12 an abstract socket",
    """
import socket
s = socket.socket(socket.AF_UNIX); s.connect('\\0@ABSTRACT')
reached = True""",
    "Landlock",
    "namespaces",
    "seccomp",
)
reach(
    "G12 a name",
    """
import socket
reached = socket.getaddrinfo('example.org', 80)""",
    "namespaces",
    "seccomp",
)
reach(
    "G12 listens",
    """
import socket
s = socket.socket(); s.bind(('0.0.0.0', 0)); s.listen()
reached = s.getsockname()[0] and os.path.exists('/sys/class/net/lo/address')""",
    *FILES,
    "seccomp",
)
reach(
    "G13 signals the supervisor",
    """
os.kill(@SUPERVISOR, 0)
reached = True""",
    "unused user",
    *FILES,
)
reach(
    "G13 reads the memory of the supervisor",
    """
open('/proc/@SUPERVISOR/mem', 'rb')
reached = True""",
    *FILES,
)
reach(
    "G13 traces the supervisor",
    """
libc = ctypes.CDLL(None, use_errno=True)
reached = libc.ptrace(16, @SUPERVISOR, 0, 0) == 0""",
    "unused user",
    *FILES,
)
reach(
    "G13 reads the memory of its parent",
    """
open('/proc/%d/mem' % os.getppid(), 'rb').read(1)
reached = True""",
    *FILES,
)
reach(
    "G13 types on the terminal",
    """
import fcntl
fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')
reached = True""",
)
reach(
    "G13 kernel calls",
    """
libc = ctypes.CDLL(None, use_errno=True)
calls = {'unshare': (0x10000000,), 'keyctl': (0, -3, 0), 'mount': (0, b'/', 0, 1 << 18, 0)}
reached = [n for n, a in calls.items() if n != 'keyctl' and getattr(libc, n)(*a) == 0]
reached += [n for n in (425, 321, 248, 101) if libc.syscall(n, 1, 0, 0, 0, 0) >= 0]""",
    "seccomp",
)
reach(
    "G14 writes outside",
    """
open('@OUTSIDE/written', 'w').write('x')
reached = True""",
    *FILES,
)
reach(
    "G14 appends to a file outside",
    """
open('@OUTSIDE/secret.txt', 'a').write('x')
reached = True""",
    *FILES,
    "unused user",
)
reach(
    "G14 writes to /tmp and /dev/shm",
    """
reached = []
for path in ('/tmp/written-@PORT', '/dev/shm/written-@PORT', '/var/tmp/written-@PORT'):
    try: open(path, 'w').write('x'); reached.append(path)
    except OSError: pass""",
    *FILES,
)
reach(
    "G14 truncates",
    """
os.truncate('@OUTSIDE/secret.txt', 0)
reached = True""",
    *FILES,
    "unused user",
)
reach(
    "G14 renames and removes",
    """
os.rename('@OUTSIDE/secret.txt', '@OUTSIDE/gone')
reached = True""",
    *FILES,
)
reach(
    "G14 a file of 10 GB",
    """
with open('big', 'wb') as file:
    for _ in range(10240): file.write(b'x' * (1 << 20))
reached = True""",
)
reach(
    "G14 fills its folder",
    """
for n in range(1000):
    with open(f'big{n}', 'wb') as file: file.write(b'x' * (1 << 23))
reached = True""",
)
reach(
    "G14 a million files",
    """
for n in range(1_000_000): os.close(os.open(f'f{n}', os.O_CREAT))
reached = True""",
)
reach(
    "G14 folders without end",
    """
for n in range(100_000): os.mkdir('d'); os.chdir('d')
reached = True""",
)
reach(
    "G14 a folder without rights",
    """
os.makedirs('a/b'); open('a/b/c', 'w').write('x'); os.chmod('a/b', 0); os.chmod('a', 0)
reached = False""",
)
