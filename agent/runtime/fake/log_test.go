package fake

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"
)

func TestLog(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 60, time.UTC)
	file := filepath.Join(t.TempDir(), "log")
	l, err := openLog(file, testingclock.NewFakeClock(at))
	if err != nil {
		t.Fatal(err)
	}
	out, errs := l.Stream("stdout"), l.Stream("stderr")
	out.Write([]byte("one\ntw"))
	errs.Write([]byte("oops\n"))
	out.Write([]byte("o\n\nlast"))
	out.Close()
	errs.Close()
	l.Close()

	const stamp = "2026-01-02T03:04:05.000000060Z "
	want := stamp + "stdout F one\n" + stamp + "stderr F oops\n" + stamp + "stdout F two\n" + stamp + "stdout F \n" +
		stamp + "stdout P last\n"
	if data, err := os.ReadFile(file); err != nil || string(data) != want {
		t.Errorf("%v\n%s", err, cmp.Diff(want, string(data)))
	}
}
