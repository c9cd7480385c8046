"""The words that invented records are made of; every list has a power of two as its length."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST = _words(
    "Ada Bela Carla Dario Edda Femi Gita Hugo Imre Jola Kofi Lena Miro Nadia Oskar Priya "
    "Quinn Rosa Samir Tilda Ugo Vera Wanda Xenia Yusuf Zora Aino Bram Chidi Dunja Emeka Freya"
)
LAST = _words(
    "Okafor Lindqvist Moreau Tanaka Silva Novak Haddad Jensen Petrov Osei Keller Ortiz Nakamura Farkas "
    "Iyer Sato Weber Costa Duarte Eriksen Fischer Gomez Horvat Ilić Jansen Kowal Larsen Mbeki Nowak "
    "Olsen Peeters Quist"
)
CITIES = _words("Lund Porto Gdynia Ghent Graz Turku Split Cork")
PLANS = ("free", "basic", "pro", "campus")
# Mostly active: how often a word stands here is its share.
LIFECYCLES = ("active",) * 5 + ("suspended",) * 2 + ("closed",)
LABELS = _words("priority trial partner archive region-a region-b invoice legacy")
LEVELS = ("error", "warning", "warning", "info", "info", "info", "debug", "fatal")
STAGES = ("extract", "match", "load", "publish")
STATUSES = ("started", "started", "finished", "aborted")
DATASETS = ("enrolment", "attendance", "grades", "payroll")
COURSES = _words("ALG-101 BIO-204 CHE-110 ECO-300 GEO-120 HIS-220 LAW-410 PHY-150")

FILLER = (
    "The record was reviewed and no change was asked for; the holder will be told by post. "
    "Please keep the earlier agreement in mind when the terms are set again next spring. "
    "All figures are as reported by the branch and were not checked against the ledger. "
)
