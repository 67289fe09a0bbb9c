package admin

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestCodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newCodes(clock.RealClock{})
		issue := func(token string) string {
			t.Helper()
			a, err := d.issue(token)
			if err != nil || len(a.Code) < 20 || !a.Expires.Equal(time.Now().Add(time.Minute)) {
				t.Fatalf("%+v, %v", a, err)
			}
			return a.Code
		}
		redeem := func(code, want string) {
			t.Helper()
			if got, err := d.redeem(code); got != want || (err == nil) != (want != "") {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		}
		first, second := issue("admin"), issue("view")
		redeem(second, "view")
		redeem(second, "") // only once
		time.Sleep(59 * time.Second)
		redeem(first, "admin")
		redeem("", "")
		late := issue("admin")
		time.Sleep(time.Minute)
		redeem(late, "") // too late

		for range maxCodes {
			issue("admin")
		}
		if _, err := d.issue("admin"); !errors.Is(err, errTooManyCodes) {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Minute)
		redeem(issue("admin"), "admin")
	})
}
