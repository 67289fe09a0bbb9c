// Package garbage decides what of a node's containers, sandboxes and images
// nobody needs any more. It decides only; the agent removes.
//
//   - Policy: the limits, with upstream's flags and defaults.
//   - Containers, Sandboxes: which dead ones of some pods are to go.
//   - Images: what is remembered of images, and which are to go.
package garbage

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// Policy is what may stay. Use Default, or Flags and Check.
type Policy struct {
	ContainerPeriod time.Duration // between looks at containers, sandboxes and log folders
	MinContainerAge time.Duration // a container stays that long after its end
	PerContainer    int           // dead instances kept of each container; below 0 all
	MaxContainers   int           // dead instances kept on the node; below 0 all

	ImagePeriod time.Duration // between looks at images
	ImageHigh   int           // percent of the disk used at which images go; 100: never for want of space
	ImageLow    int           // percent of the disk used down to which they do
	ImageMinAge time.Duration // an image stays that long after it came
	ImageMaxAge time.Duration // an image unused for that long goes; 0: never for its age
}

// Default is upstream's, as of its KubeletConfiguration.
func Default() Policy {
	return Policy{
		ContainerPeriod: time.Minute, PerContainer: 1, MaxContainers: -1,
		ImagePeriod: 5 * time.Minute, ImageHigh: 85, ImageLow: 80, ImageMinAge: 2 * time.Minute,
	}
}

// Flags are kubelet's, and the two periods, which kubelet has built in.
func (p *Policy) Flags(f *pflag.FlagSet) {
	*p = Default()
	f.DurationVar(&p.MinContainerAge, "minimum-container-ttl-duration", p.MinContainerAge, "Minimum age of a terminated container before it is garbage collected.")
	f.IntVar(&p.PerContainer, "maximum-dead-containers-per-container", p.PerContainer, "Maximum number of terminated instances to keep per container. Negative: all are kept.")
	f.IntVar(&p.MaxContainers, "maximum-dead-containers", p.MaxContainers, "Maximum number of terminated container instances to keep on the node. Negative: no limit.")
	f.DurationVar(&p.ContainerPeriod, "container-gc-period", p.ContainerPeriod, "Interval between garbage collections of containers, sandboxes and logs of deleted pods.")
	f.IntVar(&p.ImageHigh, "image-gc-high-threshold", p.ImageHigh, "Percent of disk usage above which image garbage collection always runs. 100: never.")
	f.IntVar(&p.ImageLow, "image-gc-low-threshold", p.ImageLow, "Percent of disk usage down to which image garbage collection frees space.")
	f.DurationVar(&p.ImageMinAge, "minimum-image-ttl-duration", p.ImageMinAge, "Minimum age of an unused image before it is garbage collected.")
	f.DurationVar(&p.ImageMaxAge, "image-maximum-gc-age", p.ImageMaxAge, "Maximum age of an unused image before it is garbage collected. 0: no limit.")
	f.DurationVar(&p.ImagePeriod, "image-gc-period", p.ImagePeriod, "Interval between garbage collections of images.")
}

// Check says what is wrong with the flags' values.
func (p *Policy) Check() error {
	var errs []error
	percent := func(flag string, value int) {
		if value < 0 || value > 100 {
			errs = append(errs, fmt.Errorf("--%s: %d is not between 0 and 100", flag, value))
		}
	}
	percent("image-gc-high-threshold", p.ImageHigh)
	percent("image-gc-low-threshold", p.ImageLow)
	if p.ImageLow >= p.ImageHigh {
		errs = append(errs, fmt.Errorf("--image-gc-low-threshold: %d is not below --image-gc-high-threshold, which is %d", p.ImageLow, p.ImageHigh))
	}
	for flag, d := range map[string]time.Duration{"minimum-container-ttl-duration": p.MinContainerAge, "minimum-image-ttl-duration": p.ImageMinAge, "image-maximum-gc-age": p.ImageMaxAge} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("--%s: %v is below 0", flag, d))
		}
	}
	for flag, d := range map[string]time.Duration{"container-gc-period": p.ContainerPeriod, "image-gc-period": p.ImagePeriod} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("--%s: %v is not above 0", flag, d))
		}
	}
	if p.ImageMaxAge > 0 && p.ImageMaxAge <= p.ImageMinAge {
		errs = append(errs, fmt.Errorf("--image-maximum-gc-age: %v is not above --minimum-image-ttl-duration, which is %v", p.ImageMaxAge, p.ImageMinAge))
	}
	return errors.Join(errs...)
}

// ImagesOff reports whether no image ever is to go by itself.
func (p *Policy) ImagesOff() bool { return p.ImageHigh == 100 && p.ImageMaxAge == 0 }
