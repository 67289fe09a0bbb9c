package gatewayapi

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The committed file is what build.sh makes of the module in go.mod.
func TestFileIsUpToDate(t *testing.T) {
	made := filepath.Join(t.TempDir(), "made.zst")
	if out, err := exec.Command("./build.sh", made).CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, out)
	}
	var files [2][]byte
	for i, name := range []string{made, "../../agent/cmd/addon/gateway-api.yaml.zst"} {
		var err error
		if files[i], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("gateway-api.yaml.zst is not up to date: run testdata/gatewayapi/build.sh")
	}
}
