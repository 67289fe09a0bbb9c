package machine

import (
	"bufio"
	"bytes"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"monopod/testdata/harness"
)

const (
	// ownInit is how much our own packages may allocate before main, and allInit how much all packages may, in bytes. Every
	// command pays for it. (Time would depend on the machine; the bytes are nearly the same in each run.)
	ownInit = 64 << 10
	allInit = 4_700_000
)

// TestLittleIsInitialized limits what package initialisation allocates.
func TestLittleIsInitialized(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(harness.Build(t).Monopod(harness.Plain), "version")
	cmd.Env = append(cmd.Environ(), "GODEBUG=inittrace=1,gctrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &trace)
	}
	all, own, packages := 0, 0, 0
	line := regexp.MustCompile(`^init (\S+) .* (\d+) bytes, \d+ allocs$`)
	text := trace.String()
	for in := bufio.NewScanner(&trace); in.Scan(); {
		m := line.FindStringSubmatch(in.Text())
		if m == nil {
			continue
		}
		size, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		packages++
		all += size
		if strings.HasPrefix(m[1], "monopod/") {
			own += size
		}
	}
	if collection := regexp.MustCompile(`(?m)^gc 1 @.*`).FindString(text); collection != "" {
		t.Errorf("the garbage collector ran, which takes 3 ms of CPU; package early should postpone it: %s", collection)
	}
	t.Logf("%d packages allocate %d bytes, our own %d", packages, all, own)
	if packages < 100 || own == 0 {
		t.Fatalf("the trace of initialisation has only %d packages, and %d bytes of ours", packages, own)
	}
	if own > ownInit {
		t.Errorf("our own packages allocate %d bytes before main, at most %d are allowed: use process/pattern, or sync.OnceValue", own, ownInit)
	}
	if all > allInit {
		t.Errorf("all packages allocate %d bytes before main, at most %d are allowed: `GODEBUG=inittrace=1 monopod version` lists them", all, allInit)
	}
}
