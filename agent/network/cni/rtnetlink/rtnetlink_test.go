package rtnetlink

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDo: a request that fails does not keep those after it from the kernel, and each has its own error.
func TestDo(t *testing.T) {
	t.Parallel()
	s, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lo, err := s.Link("lo")
	if err != nil || lo.Index != 1 || lo.MTU == 0 {
		t.Errorf("lo is %+v, %v", lo, err)
	}
	if _, err := s.Link("no-such-link"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("%v for a link that does not exist", err)
	}
	if err := s.Remove("no-such-link"); err != nil {
		t.Errorf("%v when a link that does not exist is removed", err)
	}
	const none = 1 << 30
	if os.Getuid() != 0 {
		t.Skip("skipped: only root may change links")
	}
	errs, err := s.Do(Up(none), Up(lo.Index), Up(none))
	if err != nil || !errors.Is(errs[0], unix.ENODEV) || errs[1] != nil || !errors.Is(errs[2], unix.ENODEV) {
		t.Errorf("%v, %v", errs, err)
	}
	if _, err := s.LinkAfter("lo", Up(none)); !errors.Is(err, unix.ENODEV) {
		t.Errorf("%v though the request before failed", err)
	}
}
