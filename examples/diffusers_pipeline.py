# examples/diffusers_pipeline.py
"""A pipeline of diffusers: its UNet is compiled, and the steps of the scheduler around it stay Python."""

import diffusers
import torch

import torchbolt


def main():
    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
    )  # fmt: skip
    pipeline = diffusers.DDIMPipeline(unet.eval(), diffusers.DDIMScheduler(num_train_timesteps=100))
    pipeline.set_progress_bar_config(disable=True)

    def images():
        return pipeline(num_inference_steps=4, output_type="np", generator=torch.Generator().manual_seed(1)).images

    expected = images()
    pipeline.unet = torchbolt.compile(pipeline.unet)
    images()
    worst = abs(images() - expected).max()
    assert worst < 1e-3, worst
    stats = torchbolt.stats()
    print(f"difference {worst:.1e}, regions {stats['regions']}, recordings {stats['recordings']}")


if __name__ == "__main__":
    main()
