"""Archives for the tests, good and bad, packed by Python's own libraries."""

import io
import lzma
import tarfile
import zlib


def member(name, data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tar_of(members, form=tarfile.PAX_FORMAT):
    """A tar of (info, bytes), written by Python's own library."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def deb_of(tar):
    """A Debian package around a tar."""
    parts = {
        b"debian-binary": b"2.0\n",
        b"control.tar.xz": b"odd",
        b"data.tar.xz": lzma.compress(tar),
    }
    deb = b"!<arch>\n"
    for name, data in parts.items():
        deb += name.ljust(16) + b"0".ljust(12) + b"0".ljust(6) * 2 + b"100644".ljust(8)
        deb += str(len(data)).encode().ljust(10) + b"`\n" + data + b"\n" * (len(data) % 2)
    return deb


def packed(tar, kind):
    if kind == "tar.gz":
        packer = zlib.compressobj(9, wbits=31)
        return packer.compress(tar) + packer.flush()
    return deb_of(tar) if kind == "deb" else tar
