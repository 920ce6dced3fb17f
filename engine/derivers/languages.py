"""The language of a text, told by its script, and among those of Latin script by their commonest words."""

import re
from typing import Final

from engramlog.engine.derivers.texts import LATIN_WORD, word_set

_KANA: Final = re.compile(r"[\u3041-\u309f\u30a1-\u30fa\uff66-\uff9d]")
_HANGUL: Final = re.compile(r"[\uac00-\ud7a3\u1100-\u11ff\u3130-\u318f]")
_HAN: Final = re.compile(r"[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0003134f]")
_OTHER_SCRIPTS: Final = {
    "ru": re.compile(r"[\u0400-\u04ff]"),
    "ar": re.compile(r"[\u0600-\u06ff]"),
    "hi": re.compile(r"[\u0900-\u097f]"),
    "th": re.compile(r"[\u0e01-\u0e5b]"),
    "el": re.compile(r"[\u0370-\u03ff]"),
    "he": re.compile(r"[\u05d0-\u05ea]"),
}
COMMON: Final[dict[str, frozenset[str]]] = {
    "en": word_set(
        "the a an and or but of to in on at for from with by is are was were be been am i i'm it it's you your my me "
        "we he she they this that these those have has had do does did don't not no yes what how who when where which "
        "will would can could should there their our about just so if as up out really very like get got hi hello hey "
        "thanks thank please good great let's i'll i've that's what's his her them then than because all some any "
        "more"
    ),
    "es": word_set(
        "el la los las un una unos unas y o pero de del en a al con por para sin es son era fue ser estoy está están "
        "soy yo tú él ella nosotros me te se mi tu su sus que qué cómo quién cuando dónde no sí muy más también ya "
        "hay lo le esto esta este eso como porque hola gracias hoy mañana tengo tiene quiero puede hace todo"
    ),
    "fr": word_set(
        "le la les un une des et ou mais de du en à au aux avec pour par sans est sont était suis être je j'ai tu il "
        "elle nous vous ils elles me te se mon ma mes ton ta son sa ses que qui quoi comment où quand ne pas oui très "
        "plus aussi ce cette ces c'est dans sur il y a bonjour merci aujourd'hui demain fait tout d'accord j'aime"
    ),
    "de": word_set(
        "der die das den dem des ein eine einen einem einer und oder aber von vom zu zum zur in im an am auf für mit "
        "aus bei ist sind war bin sein ich du er sie es wir ihr mich mir dich dir mein meine dein deine nicht kein "
        "keine ja nein was wie wer wann wo warum sehr auch noch schon dass wenn als nach hallo danke heute morgen "
        "habe hat haben"
    ),
    "pt": word_set(
        "o os um uma uns umas e ou mas de do da dos das em no na nos nas a ao com por para sem é são era foi ser "
        "estou está sou eu você ele ela nós me te se meu minha seu sua que quê como quem quando onde não sim muito "
        "mais também já há isto esta este isso porque olá obrigado obrigada hoje amanhã tenho tem quero pode faz tudo"
    ),
    "it": word_set(
        "il lo la i gli le un uno una e o ma di del della dei delle in nel nella a al alla con per da dal senza è "
        "sono era sei essere io tu lui lei noi voi loro mi ti si mio mia tuo tua suo sua che chi cosa come quando "
        "dove non sì molto più anche già c'è questo questa perché ciao grazie oggi domani ho ha hanno voglio può "
        "tutto"
    ),
}
"""The commonest words of languages of Latin script."""
_WORDS_LOOKED_AT: Final = 400


def language_of(prose: str) -> str | None:
    """The ISO 639-1 code of the language of a text without code and links; None: there is too little to tell.

    Japanese is known by its kana (Chinese has none), Chinese by its characters, Korean by its letters. A character of
    these weighs as much as three Latin letters, about what it says.
    """
    kana, hangul, han = (len(script.findall(prose)) for script in (_KANA, _HANGUL, _HAN))
    words = [word.lower() for word in LATIN_WORD.findall(prose)[:_WORDS_LOOKED_AT]]
    latin = sum(map(len, words))
    if 3 * (kana + hangul + han) > latin:
        return "ko" if hangul >= kana + han else "ja" if kana > 0.1 * (kana + han) else "zh"
    for code, script in _OTHER_SCRIPTS.items():
        if len(script.findall(prose)) > latin:
            return code
    return _of_latin(words)


def _of_latin(words: list[str]) -> str | None:
    counts = {code: sum(word in common for word in words) for code, common in COMMON.items()}
    best = max(counts, key=lambda code: counts[code])
    if counts[best] == 0:
        return None
    if sum(count == counts[best] for count in counts.values()) > 1:
        return "en" if counts["en"] == counts[best] else None
    return best
