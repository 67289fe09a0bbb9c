package logs

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Flags adds kubelet's flags for log rotation.
func (r *Rotation) Flags(f *pflag.FlagSet) {
	*r = DefaultRotation()
	f.Var((*size)(&r.MaxSize), "container-log-max-size",
		"Maximum size of a container log file before it is rotated, for example 10Mi. Negative: no rotation.")
	f.IntVar(&r.MaxFiles, "container-log-max-files", r.MaxFiles,
		"Maximum number of log files of a container, at least 2. All but the newest two are compressed.")
	f.DurationVar(&r.Period, "container-log-monitor-interval", r.Period,
		"Interval at which the sizes of container logs are checked.")
}

// Check validates the flags against upstream's bounds.
func (r *Rotation) Check() error {
	var errs []error
	if r.MaxFiles < 2 {
		errs = append(errs, fmt.Errorf("--container-log-max-files must be at least 2, got %d", r.MaxFiles))
	}
	if r.MaxSize == 0 {
		errs = append(errs, errors.New("--container-log-max-size must not be 0; a negative value disables rotation"))
	}
	if r.Period <= 0 {
		errs = append(errs, fmt.Errorf("--container-log-monitor-interval must be positive, got %v", r.Period))
	}
	return errors.Join(errs...)
}

// size is a flag whose value is a quantity such as 10Mi, in bytes.
type size int64

var _ pflag.Value = (*size)(nil)

func (s *size) String() string { return resource.NewQuantity(int64(*s), resource.BinarySI).String() }

func (s *size) Type() string { return "quantity" }

func (s *size) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return err
	}
	*s = size(q.Value())
	return nil
}
