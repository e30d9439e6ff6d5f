"""Readers of text on small files in the official forms, made here."""

import json

import numpy as np
import pytest
from data_files import cases, check, leaf_file, write
from tools import rejected

from fedbench.data.sources import sent140, shakespeare, wikitext2

# ---- Shakespeare

SAY = "0123456789" * 10  # characters of known places

GUTENBERG = f"""\ufeffThe Project Gutenberg EBook of The Complete Works of William Shakespeare, by
William Shakespeare

1609

THE SONNETS

by William Shakespeare

                     1
  Time. this would be a role,
    and so this line, were it not of the first work.

1601

THE TRAGEDY OF ONE, OR:
NONE

by William Shakespeare

DRAMATIS PERSONAE
  Fool, a fool

ACT_1|SC_1

  Ghost. nobody's title page
Enter the FOOL and SIR TOBY
  FOOL. {"a" * 50}
    {"b" * 30}
                                        Exit GHOST
  Sir Toby. {SAY[:59]}
    {SAY[:59]}
  And so he sang, a line that belongs to nobody
    {SAY[:59]}
  GHOST. two lines
    are too few
  FIRST LORD (aside). not a name
    but still the ghost's, so he has four
  LADY. No
    more
    .

THE END



1593

THE COMEDY OF ERRORS



by William Shakespeare

ACT I. SCENE 1

AEGEON. Proceed,
  Solinus,
OF SYRACUSE, not a name
ACT II. SCENE 1
This line is nobody's
DUKE. {"c" * 78}
d
<<THIS ELECTRONIC VERSION OF THE COMPLETE WORKS>>
Nobody again
DUKE. e

1609

A MONOLOGUE

by William Shakespeare

  ALONE. one role is no play
    indeed
    not
"""


PLAYS = "shakespeare/data/raw_data/raw_data.txt"


def write_plays(folder):
    write(folder / PLAYS, GUTENBERG)


@pytest.fixture
def gutenberg(tmp_path):
    write_plays(tmp_path)
    return tmp_path


def windows(folder, **options):
    return shakespeare.load(
        folder,
        0,
        **({"split": 1} | options),
    )


def letters(row):
    return "".join(shakespeare.LETTERS[t] for t in row)


def test_the_letters_are_leafs():
    assert len(shakespeare.LETTERS) == 80
    assert shakespeare.encode("\n Az}")[0].tolist() == [0, 1, 25, 78, 79]
    codes, unknown = shakespeare.encode("é<€ÿ")  # none has a place
    assert (codes.tolist(), unknown, codes.dtype) == ([1] * 4, 4, np.uint8)


def test_plays_and_their_roles():
    one, comedy = shakespeare.plays(GUTENBERG)
    assert one[0] == "NONE"  # the nearest line above the author that is not empty
    assert one[1] == {
        "GHOST": [
            "nobody's title page",
            "two lines",
            "are too few",
            "but still the ghost's, so he has four",
        ],
        "FOOL": ["a" * 50, "b" * 30, " " * 36 + "Exit GHOST"],
        "SIR TOBY": [SAY[:59]] * 3,
        "LADY": ["No", "more", "."],
    }
    assert comedy[0] == "THE COMEDY OF ERRORS"
    assert comedy[1] == {
        "AEGEON": ["Proceed,", "  Solinus,", "OF SYRACUSE, not a name"],
        "DUKE": [
            "c" * 78,
            "d",
            "e",
            "",
            "1609",
            "",
            "A MONOLOGUE",
            "",
        ],
    }


def test_title_and_author_may_be_two_to_seven_lines_apart():
    author = "by William Shakespeare\n"
    for apart in range(2, 8):
        text = f"x\n{author}TITLE" + "\n" * apart + author + "  A. b\n  C. d\n"
        assert shakespeare.plays(text) == [("TITLE", {"A": ["b"], "C": ["d"]})]


def test_shakespeare_windows(gutenberg):
    e = windows(gutenberg)
    # FOOL: 50 a, blank, 30 b, blanks joined into one, "Exit GHOST", blank: 93 characters. SIR TOBY:
    # 3 x (59 + blank). LADY: 10 characters; GHOST: 80 characters, one too few; AEGEON: 43; DUKE: 78
    # c, " d e 1609 A MONOLOGUE ".
    assert e.names == ("NONE_FOOL", "NONE_SIR_TOBY", "THE_COMEDY_OF_ERRORS_DUKE")
    assert np.bincount(e.owner).tolist() == [13, 100, 20]
    check(e, shape=(133, 80), classes=80)
    fool = "a" * 50 + " " + "b" * 30 + " Exit GHOST "
    assert [letters(row) for row in e.x[:13]] == [fool[i : i + 80] for i in range(13)]
    assert letters(e.y[:13]) == fool[80:] == "b Exit GHOST "
    assert letters(e.x[113]) == "c" * 78 + " d"
    assert letters(e.y[113:]) == " e 1609 A MONOLOGUE "
    assert not e.held_out.any()
    assert e.sources[0] == "Shakespeare: 2 plays, 6 roles, 3 with a window, 133 windows"


def test_shakespeare_cuts_in_time(gutenberg):
    e = windows(gutenberg, split=0.1)
    # SIR TOBY: 100 windows, 10 to train on, 79 across the border, 11 to test on; the others have
    # none after theirs
    check(
        e,
        names=("NONE_SIR_TOBY",),
        held_out=[False] * 10 + [True] * 11,
    )
    line = (SAY[:59] + " ") * 3
    assert letters(e.x[0]) == line[:80]
    assert letters(e.x[9]) == line[9:89]
    assert letters(e.x[10]) == line[89:169]  # begins where the last window to train on ends
    assert letters(e.y[10:]) == line[169:]
    assert "on each side of the cut (2 roles have not)" in e.sources[1]


def test_shakespeare_limits_its_roles(gutenberg):
    assert len(windows(gutenberg, min_samples=20).names) == 2
    assert len(windows(gutenberg, min_samples=21).names) == 1
    everything = windows(gutenberg)
    some = [shakespeare.load(gutenberg, seed, split=1, clients=2) for seed in (0, 0, *range(1, 9))]
    assert some[0].names == some[1].names
    assert len({e.names for e in some}) == 3  # of three roles every pair is drawn by some seed
    for e in some:
        drawn = [everything.names.index(name) for name in e.names]
        assert np.array_equal(e.x, everything.x[np.isin(everything.owner, drawn)])


SHAKESPEARE = """
{"split": 0.8}        no role has .* windows, and some on both sides of data.split=0.8
{"min_samples": 101}  no role has data.source.min_samples=101 windows
{"clients": 4}        must be at most 3, the number of roles of this source; got 4
{"json_test": "x"}    data.test needs data.train
"""


@pytest.mark.parametrize(("options", "message"), cases(SHAKESPEARE))
def test_shakespeare_refuses(gutenberg, options, message):
    with rejected(message):
        windows(gutenberg, **json.loads(options))


def test_shakespeare_ends_lines_as_any_system_does(gutenberg):
    expected = windows(gutenberg)
    write(
        gutenberg / PLAYS,
        GUTENBERG.removeprefix("\ufeff").replace("\n", "\r\n"),
    )
    assert np.array_equal(windows(gutenberg).x, expected.x)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xe9nter", r"raw_data.txt is not text in UTF-8 \(.*0xe9"),
        (b"To be, or not to be\n", "raw_data.txt contains no plays; it must be 100.txt of https"),
    ],
)
def test_shakespeare_refuses_other_texts(gutenberg, text, message):
    write(gutenberg / PLAYS, text)
    with rejected(message):
        windows(gutenberg)


def leaf_strings(path, users):
    """``users``: name -> text, of which every 80 characters predict the next."""
    data = {}
    for user, text in users.items():
        starts = range(len(text) - 80)
        data[user] = (
            [text[i : i + 80] for i in starts],
            list(text[80:]),
        )
    return leaf_file(path, data)


def test_shakespeare_reads_leafs_json(tmp_path):
    text = (SAY[:59] + " ") * 3
    train = leaf_strings(
        tmp_path / "train/0.json",
        {"B": text[:90], "A": text[:82]},
    )
    test = leaf_strings(
        tmp_path / "test.json",
        {"A": text[59:140], "B": text[89:170]},
    )
    e = windows(
        tmp_path,
        json_train=str(tmp_path / "train"),
        json_test=test,
    )
    check(
        e,
        names=("B", "A"),
        owner=[0] * 11 + [1] * 3,
        held_out=[False] * 10 + [True] + [False] * 2 + [True],
    )
    assert letters(e.x[10]) + letters(e.y[10:11]) == text[89:170]
    some = windows(tmp_path, json_train=train, json_test=test, min_samples=4)
    assert some.names == ("B",)


@pytest.mark.parametrize(
    ("users", "message"),
    [
        (
            {"a": ([[0.5]], [1])},
            "lists of the same length, of strings",
        ),
        ({"a": (["b"], ["c"])}, "strings of 80 characters and of one"),
        ({}, "no role has"),
    ],
)
def test_leafs_json_of_text_is_checked(tmp_path, users, message):
    train = leaf_file(tmp_path / "bad.json", users)
    with rejected(message):
        windows(tmp_path, json_train=train)


# ---- Sentiment140

TWEETS = (
    b'"0","1","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY","bob",'
    b'"@amy Caf\xe9, it\'s ""great""! &amp; MORE"\n'
    b'"4","2","Mon Apr 06 22:19:49 PDT 2009","NO_QUERY","amy","good good good good good good"\r\n'
    b'"4","3","Mon Apr 06 22:19:53 PDT 2009","NO_QUERY","bob",""\n'
    b'"0","4","Mon Apr 06 22:19:57 PDT 2009","NO_QUERY","cat","Good, two\nlines"\n'
)
TEST_TWEETS = (
    b'"2","5","Mon May 11 03:17:40 UTC 2009","kindle2","cat","neutral good"\n'
    b'"4","6","Mon May 11 03:18:03 UTC 2009","kindle2","amy","great?"\n'
)
GLOVE = "good 1 0.5\ngreat 2 0\n! 3 0\ncaf\u00e9 4 0\ngreat 9 9\nit's 5 -1e-3\n; 6 0\n"


TRAIN_CSV = "sent140/data/raw_data/training.csv"
VECTORS = "glove/small.2d.txt"


def write_tweets(folder):
    write(folder / TRAIN_CSV, TWEETS)
    write(folder / "sent140/data/raw_data/test.csv", TEST_TWEETS)
    write(folder / VECTORS, GLOVE)


@pytest.fixture
def tweets(tmp_path):
    write_tweets(tmp_path)
    return tmp_path


def read(folder, **options):
    defaults = {"glove": "small.2d.txt", "min_tweets": 1, "length": 8}
    return sent140.load(folder, **(defaults | options))


# of the tokens; of two vectors of a word the first counts
ROWS = [[0, 0], [0, 0], [1, 0.5], [2, 0], [3, 0], [4, 0], [5, -0.001], [6, 0]]


def test_sent140_reads_accounts(tweets):
    e = read(tweets)
    check(
        e,
        names=("amy", "bob", "cat"),
        owner=[0, 0, 1, 1, 2],
        y=[1, 1, 0, 1, 0],
        classes=2,
    )
    # good 2, great 3, ! 4, café 5, it's 6, ; 7; unknown: amy , amp more two lines ?
    assert e.tokens == 8
    assert np.array_equal(e.vectors(), np.float32(ROWS))
    assert e.x.tolist() == [
        [2, 2, 2, 2, 2, 2, 0, 0],
        [3, 1, 0, 0, 0, 0, 0, 0],
        [1, 5, 1, 6, 3, 4, 1, 7],  # amy café , it's great ! amp ; and "more" is cut off
        [0] * 8,
        [2, 1, 1, 1, 0, 0, 0, 0],
    ]
    assert "4 training and 2 test tweets" in e.sources[0]
    assert "1 neutral ones left out, 3 accounts" in e.sources[0]


def test_sent140_options(tweets):
    assert read(tweets, min_tweets=2).names == ("amy", "bob")
    assert read(tweets, length=2).x.tolist() == [[2, 2], [3, 1], [1, 4], [0, 0], [2, 1]]
    leaf = read(tweets, lowercase=False)
    assert leaf.x[2].tolist() == [1, 1, 1, 5, 3, 4, 1, 6]  # "Café" has no vector
    assert leaf.x[4, 0] == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b'"target","id","date","query","user","text"\n', "csv, line 1: expected .* .'target'."),
        (TWEETS + b'"0","1","d","q","bob"\n', "training.csv, line 6: .*not enough values"),
        (
            b'"0","1","d","q","bob","never ends\n' + b"x" * 200_000,
            "training.csv, line 2: expected polarity .*field larger",
        ),
    ],
)
def test_sent140_refuses_other_files(tweets, row, message):
    write(tweets / TRAIN_CSV, row)
    with rejected(message):
        read(tweets)


SENT140 = """
{"min_tweets": 3}              no account has data.source.min_tweets=3 tweets; lower it
{"glove": "x.txt"}             does not contain glove/x.txt; put the file there, or set data.source
{"glove": "glove.6B.50d.txt"}  glove.6B.zip
"""


@pytest.mark.parametrize(("options", "message"), cases(SENT140))
def test_sent140_refuses(tweets, options, message):
    with rejected(message):
        read(tweets, **json.loads(options))


def test_vectors_of_some_words(tweets):
    words = ["it's", "nowhere", "great"]
    table = sent140.vectors(tweets / VECTORS, words)
    assert np.array_equal(table, np.float32([[0, 0], [0, 0], [5, -0.001], [0, 0], [2, 0]]))
    assert sent140.vocabulary(tweets / VECTORS)[:3] == ["good", "great", "!"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", "small.2d.txt must have a word and its numbers in .* same shape"),
        ("a 1 2\nb 1 x\n", "small.2d.txt, line 2: must have a word and .*could not convert"),
        ("", "small.2d.txt must have a word and its numbers"),
    ],
)
def test_vectors_refuse(tmp_path, text, message):
    write(tmp_path / VECTORS, text)
    with rejected(message):
        sent140.vectors(tmp_path / VECTORS, ["a", "b"])


# ---- WikiText-2

WIKI = {
    "train": " \n = A title = \n \n b c <unk> . \n b b @-@ – \n",
    "valid": " \n b c b c b c \n",
    "test": " \n = new = \n A b c b \n",
}


def write_wiki(folder):
    for part, text in WIKI.items():
        write(folder / f"wikitext-2/wiki.{part}.tokens", text)


@pytest.fixture
def wiki(tmp_path):
    write_wiki(tmp_path)
    return tmp_path


def segments(folder, **options):
    return wikitext2.load(
        folder,
        clients=2,
        columns=2,
        length=3,
        **options,
    )


def test_words_have_numbers_by_appearance():
    assert wikitext2.vocabulary(["b", "<unk>", "a", "b"]) == {"b": 0, "<unk>": 1, "a": 2}
    assert wikitext2.vocabulary(["a"]) == {"a": 0, "<unk>": 1}


def test_wikitext_streams(wiki):
    e = segments(wiki)
    # 17 words: two pieces of 8, columns of 4, one segment of 3 each
    # piece 0: <eos> = A title | = <eos> <eos> b;  piece 1: c <unk> . <eos> | b b @-@ –
    assert e.x[:4].tolist() == [[0, 1, 2], [1, 0, 0], [5, 6, 7], [4, 4, 8]]
    assert e.y[:4].tolist() == [[1, 2, 3], [0, 0, 4], [6, 7, 0], [4, 8, 9]]
    # test: <eos> = new = <eos> A b c b <eos>: two pieces of 5, one segment each; "new" is unknown
    assert e.x[4:].tolist() == [[0, 1, 6], [2, 4, 5]]
    assert e.y[4:].tolist() == [[1, 6, 1], [4, 5, 4]]
    check(
        e,
        owner=[0, 0, 1, 1, 0, 1],
        held_out=[False] * 4 + [True] * 2,
        classes=10,
        names=("piece_0", "piece_1"),
        unofficial=e.sources[:1],
    )
    assert e.sources == (
        "WikiText-2: not the official files (sha1 differs)",
        "wiki.train.tokens: 17 words, 10 different, 12 predicted",
        "wiki.test.tokens: 10 words, 1 read as <unk>, 6 predicted",
    )


def test_wikitext_can_test_on_another_file_or_none(wiki):
    valid = segments(wiki, held_out="valid")
    assert valid.x[4:].tolist() == [[0, 4, 5], [5, 4, 5]]  # <eos> b c b | c b c <eos>
    assert segments(wiki, held_out=None).held_out.tolist() == [False] * 4


@pytest.mark.parametrize(
    ("count", "clients", "columns", "length"), [(1000, 16, 2, 5), (997, 3, 7, 35), (72, 1, 1, 35)]
)
def test_no_word_is_predicted_twice(count, clients, columns, length):
    parts = wikitext2.streams(
        np.arange(count),
        range(clients),
        columns,
        length,
        "f",
    )
    x = np.concatenate([part.x for part in parts])
    y = np.concatenate([part.y for part in parts])
    assert len(np.unique(y)) == y.size == x.size
    assert np.array_equal(y, x + 1)
    assert [len(part.y) for part in parts] == [len(x) // clients] * clients
    # all that rounding can leave out
    assert count - y.size < clients + clients * columns * (length + 1)
    for k, part in enumerate(parts):  # pieces follow each other
        assert part.y.min() > k * (count // clients)
        assert part.y.max() < (k + 1) * (count // clients)


def test_wikitext_refuses(wiki):
    message = "wiki.train.tokens has 17 words, too few for data.clients=16 with 20 col"
    with rejected(message):
        wikitext2.load(wiki)


# ---- the real data


@pytest.mark.slow
@pytest.mark.data("shakespeare")
def test_real_shakespeare(real_data):
    e = shakespeare.load(real_data, 0, split=1)
    # as LEAF publishes
    assert e.sources[0] == "Shakespeare: 36 plays, 1144 roles, 1129 with a window, 4226158 windows"
    assert e.x.shape == (4226158, 80)
    sizes = np.bincount(e.owner)
    assert (len(sizes), round(sizes.mean()), round(sizes.std())) == (1129, 3743, 6212)
    assert np.array_equal(e.x[1, :-1], e.x[0, 1:])
    assert e.x[1, -1] == e.y[0]


@pytest.mark.slow
@pytest.mark.data("wikitext-2")
def test_real_wikitext(real_data):
    e = wikitext2.load(real_data)
    assert e.classes == 33278
    assert e.sources[1].startswith("wiki.train.tokens: 2088628 words")
    assert e.sources[2].startswith("wiki.test.tokens: 245569 words, 0 read as <unk>")
    assert e.x.shape == (
        (2088628 // 16 // 20 - 1) // 35 * 20 * 16 + (245569 // 16 - 1) // 35 * 16,
        35,
    )


@pytest.mark.data("sent140", "glove")
def test_real_sent140(real_data, tmp_path):
    for name in ("sent140", "glove"):  # what is prepared stays out of the real directory
        (tmp_path / name).symlink_to((real_data / name).resolve())
    glove = sorted((real_data / "glove").glob("*.txt"))[0]
    e = sent140.load(tmp_path, min_tweets=5, glove=glove.name)
    assert np.bincount(e.owner).min() >= 5
    assert set(np.unique(e.y)) == {0, 1}
    assert e.vectors().shape[0] == e.tokens > e.x.max()
