package shutdown

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Shares are the periods of each priority; the flag's format is 0=20s,1000=10s.
type Shares []Share

var _ pflag.Value = (*Shares)(nil)

// String implements pflag.Value.
func (s *Shares) String() string {
	var parts []string
	for _, one := range *s {
		parts = append(parts, fmt.Sprintf("%d=%v", one.Priority, one.Time))
	}
	return strings.Join(parts, ",")
}

// Type implements pflag.Value.
func (*Shares) Type() string { return "priority=duration,..." }

// Set implements pflag.Value.
func (s *Shares) Set(text string) error {
	var out Shares
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		priority, err := strconv.ParseInt(strings.TrimSpace(name), 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a priority (an integer)", name)
		}
		d, err := time.ParseDuration(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("priority %d: %q is not a duration such as 20s", priority, value)
		}
		out = append(out, Share{int32(priority), d})
	}
	*s = out
	return nil
}
