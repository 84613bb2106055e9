"""A real worker whose models are slow: each call of a part of a model takes 30 ms longer.

python tests/slow_worker.py '{"paths": [], "lecture": true}'
"""

import time

from torch.nn.modules.module import register_module_forward_hook

from clearhead.studio.worker import main

SECONDS = 0.03

if __name__ == "__main__":
    register_module_forward_hook(lambda module, inputs, output: time.sleep(SECONDS))
    main()
