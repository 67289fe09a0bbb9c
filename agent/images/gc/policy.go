package gc

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// Policy contains the limits of garbage collection. Use Default, or Flags and Check.
type Policy struct {
	ContainerPeriod time.Duration // interval of the collection of containers, sandboxes and log folders
	MinContainerAge time.Duration // minimum time since a container's end before it is removed
	PerContainer    int           // maximum number of dead instances of a container to keep; negative: all
	MaxContainers   int           // maximum number of dead instances on the node to keep; negative: all

	ImagePeriod time.Duration // interval of the collection of images
	ImageHigh   int           // percentage of disk usage above which images are removed; 100: never
	ImageLow    int           // percentage of disk usage at which removal stops
	ImageMinAge time.Duration // minimum age of an image before it is removed
	ImageMaxAge time.Duration // maximum time that an image is unused before it is removed; 0: unlimited
}

// Default returns upstream's defaults of KubeletConfiguration.
func Default() Policy {
	return Policy{
		ContainerPeriod: time.Minute, PerContainer: 1, MaxContainers: -1,
		ImagePeriod: 5 * time.Minute, ImageHigh: 85, ImageLow: 80, ImageMinAge: 2 * time.Minute,
	}
}

// Flags adds kubelet's flags, and the two periods, which are constants in kubelet.
func (p *Policy) Flags(f *pflag.FlagSet) {
	*p = Default()
	f.DurationVar(&p.MinContainerAge, "minimum-container-ttl-duration", p.MinContainerAge,
		"Minimum age of a terminated container before it is garbage collected.")
	f.IntVar(&p.PerContainer, "maximum-dead-containers-per-container", p.PerContainer,
		"Maximum number of terminated instances to keep per container. Negative: all are kept.")
	f.IntVar(&p.MaxContainers, "maximum-dead-containers", p.MaxContainers,
		"Maximum number of terminated container instances to keep on the node. Negative: no limit.")
	f.DurationVar(&p.ContainerPeriod, "container-gc-period", p.ContainerPeriod,
		"Interval between garbage collections of containers, sandboxes and logs of deleted pods.")
	f.IntVar(&p.ImageHigh, "image-gc-high-threshold", p.ImageHigh,
		"Percent of disk usage above which image garbage collection always runs. 100: never.")
	f.IntVar(&p.ImageLow, "image-gc-low-threshold", p.ImageLow,
		"Percent of disk usage down to which image garbage collection frees space.")
	f.DurationVar(&p.ImageMinAge, "minimum-image-ttl-duration", p.ImageMinAge,
		"Minimum age of an unused image before it is garbage collected.")
	f.DurationVar(&p.ImageMaxAge, "image-maximum-gc-age", p.ImageMaxAge,
		"Maximum age of an unused image before it is garbage collected. 0: no limit.")
	f.DurationVar(&p.ImagePeriod, "image-gc-period", p.ImagePeriod, "Interval between garbage collections of images.")
}

// Check validates the flags.
func (p *Policy) Check() error {
	var errs []error
	percent := func(flag string, value int) {
		if value < 0 || value > 100 {
			errs = append(errs, fmt.Errorf("--%s must be between 0 and 100, got %d", flag, value))
		}
	}
	percent("image-gc-high-threshold", p.ImageHigh)
	percent("image-gc-low-threshold", p.ImageLow)
	if p.ImageLow >= p.ImageHigh {
		errs = append(errs, fmt.Errorf("--image-gc-low-threshold: %d is not below --image-gc-high-threshold, which is %d",
			p.ImageLow, p.ImageHigh))
	}
	for flag, d := range map[string]time.Duration{"minimum-container-ttl-duration": p.MinContainerAge,
		"minimum-image-ttl-duration": p.ImageMinAge, "image-maximum-gc-age": p.ImageMaxAge} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("--%s must not be negative, got %v", flag, d))
		}
	}
	for flag, d := range map[string]time.Duration{"container-gc-period": p.ContainerPeriod,
		"image-gc-period": p.ImagePeriod} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("--%s must be positive, got %v", flag, d))
		}
	}
	if p.ImageMaxAge > 0 && p.ImageMaxAge <= p.ImageMinAge {
		errs = append(errs, fmt.Errorf("--image-maximum-gc-age: %v is not above --minimum-image-ttl-duration, which is %v",
			p.ImageMaxAge, p.ImageMinAge))
	}
	return errors.Join(errs...)
}

// ImagesOff reports whether images are never garbage-collected.
func (p *Policy) ImagesOff() bool { return p.ImageHigh == 100 && p.ImageMaxAge == 0 }
