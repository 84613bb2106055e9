"""What was loaded from a file or folder of another project."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from clearhead.files.reading import quote


@dataclass(frozen=True)
class Report:
    """The tensors that were read, ignored and left at zero. str(report) is the text for people."""

    kind: str
    source: str
    dtypes: tuple[str, ...]  # of the numbers in the file
    n_tensors: int  # read from the file
    n_bytes: int  # of those tensors
    n_parameters: int  # of the model
    ignored: Mapping[str, str] = field(default_factory=dict)  # tensor → why it is not needed
    zeros: tuple[str, ...] = ()  # parameters that the file does not have

    def __str__(self) -> str:
        lines = [
            f"{self.kind} from {self.source}",
            f"  read     {self.n_tensors} tensors, {self.n_bytes:,} bytes of "
            f"{' and '.join(self.dtypes)}: {self.n_parameters:,} parameters",
        ]
        for reason, count in Counter(self.ignored.values()).items():
            first = next(name for name in self.ignored if self.ignored[name] == reason)
            more = f" and {count - 1} more" if count > 1 else ""
            lines.append(f"  ignored  {quote(first)}{more}: {reason}")
        lines += [f"  zeros    {name}: the file has none" for name in self.zeros]
        return "\n".join(lines)
