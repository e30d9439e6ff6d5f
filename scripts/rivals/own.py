"""Time fedbench on the work of a rival."""

import tempfile
from pathlib import Path

from common import TRAIN_IMAGES, parser, report

import fedbench


def main() -> None:
    """Train, and print the figures."""
    options = parser(__doc__, rounds=20)
    options.add_argument("rival", help="name of the rival's directory")
    args = options.parse_args()
    folder = Path(__file__).parent / args.rival
    overrides = (folder / "fedbench.args").read_text().split()
    overrides += [f"rounds={args.rounds}", f"data_dir={args.data}", f"device={args.device}"]
    if args.device != "cpu":
        overrides += ["engine.precision=tf32", "engine.mode=stacked"]
    with tempfile.TemporaryDirectory() as results:
        overrides += [f"results_dir={results}", f"eval_train_every={args.rounds}"]
        run = fedbench.run(overrides, config_dir=folder)
        rounds = run.rounds()

    per_client = run.config["local"]["epochs"] * TRAIN_IMAGES // run.config["data"]["clients"]
    images = rounds["clients"] * per_client
    seconds = rounds["seconds_train"].diff()
    measured = list(zip(seconds[1:], images[1:], strict=True))
    report("fedbench", measured, rounds["accuracy_mean"].iloc[-1])


if __name__ == "__main__":
    main()
