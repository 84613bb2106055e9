"""Drawn digits."""

from clearhead.models import ViTConfig
from clearhead.training.recipe import Recipe, TrainingConfig
from clearhead.training.tasks.pictures import PictureData


def vit_digits() -> Recipe:
    """Say which digit is drawn, from 4 × 4 patches of 7 × 7 pixels; nothing is downloaded.

    clearhead train vit-digits
    clearhead train vit-digits data.pictures=mnist      handwritten digits

    One core of an AMD EPYC: 98.55 % of the test digits right, 54 s of its time. One seed.
    """
    return Recipe(
        "vit-digits",
        data=PictureData("digits", shift=2),
        model=ViTConfig(
            image_size=28,
            patch_size=7,
            channels=1,
            d_model=64,
            n_layers=3,
            n_heads=4,
            qk_norm=True,
            activation="squared_relu",
        ),
        training=TrainingConfig(
            steps=800,
            batch_size=100,
            optimizer="muon",
            matrix_lr=0.06,
            lr=3e-3,
            warmup=0.1,
            eval_every=200,
            save_every=200,
        ),
    )
