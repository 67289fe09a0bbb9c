package fake

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMergeEnv(t *testing.T) {
	t.Parallel()
	got := mergeEnv([]string{"PATH=/", "A=1"}, []string{"HOSTNAME=x"}, []string{"A=2", "B=", "A=3"})
	if diff := cmp.Diff([]string{"PATH=/", "A=3", "HOSTNAME=x", "B="}, got); diff != "" {
		t.Error(diff)
	}
}

// words splits at spaces; @ is a space within a word.
func words(text string) []string {
	out := strings.Fields(text)
	for i := range out {
		out[i] = strings.ReplaceAll(out[i], "@", " ")
	}
	return out
}

func TestArgs(t *testing.T) {
	t.Parallel()
	ours := &storedImage{Image: &Image{Config: v1.ImageConfig{Entrypoint: []string{"/web"}, Cmd: []string{"serve"}}}}
	pretended := &storedImage{Pretended: true, Image: &Image{Config: v1.ImageConfig{Entrypoint: []string{"/web"}}}}
	for _, tc := range []struct {
		name          string
		image         *storedImage
		command, args string
		want          string // empty: refused
	}{
		{"image's own", ours, "", "", "/web serve"},
		{"arguments replace the image's", ours, "", "echo hi", "/web echo hi"},
		{"command replaces all", ours, "/web env", "", "/web env"},
		{"command and arguments", ours, "/web", "exit 3", "/web exit 3"},
		{"unknown program", ours, "nginx", "-g x", ""},
		{"misuse is the program's affair", ours, "", "exit", "/web exit"},
		{"pretended", pretended, "", "", "/web"},
		{"pretended, flags of ours", pretended, "", "-stop-after 3s", "/web -stop-after 3s"},
		{"pretended, command of ours", pretended, "sleep 5", "", "sleep 5"},
		{"pretended, kubectl run -- sleep 5", pretended, "", "sleep 5", "/web sleep 5"},
		{"pretended, unknown command", pretended, "nginx -g", "x", "/web"},
		{"pretended, true", pretended, "/bin/true", "", "/bin/true"},
		{"pretended, script", pretended, "sh -c", "true", "do true"},
		{"pretended, script as arguments", pretended, "", "/bin/sh -c exit@3", "do exit 3"},
		{"pretended, long script", pretended, "", "bash -ec sleep@2;@echo@'a@b'@&&@exit@4;echo@never",
			"do sleep 2 then echo a b then exit 4"},
		{"pretended, failure that is ignored", pretended, "", "sh -c false;echo@on", "do echo on"},
		{"pretended, failure that counts", pretended, "", "sh -c false@&&@echo@on", "do false then echo on"},
		{"pretended, script for a real shell", pretended, "", "sh -c echo@$HOME", "/web"},
		{"pretended, script with other programs", pretended, "", "sh -c sleep@1;curl@x", "/web"},
		{"pretended, unknown arguments", pretended, "", "--port 80", "/web"},
	} {
		c := &container{image: tc.image, config: &cri.ContainerConfig{Command: words(tc.command), Args: words(tc.args)},
			sandbox: &sandbox{config: &cri.PodSandboxConfig{}}}
		got, err := c.args()
		if strings.Join(got, " ") != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%s: %q, %v, want %q", tc.name, got, err, tc.want)
		}
	}
}

// A pod can say with which code its containers end.
func TestExitCodeOfAPod(t *testing.T) {
	t.Parallel()
	c := &container{
		image: &storedImage{Pretended: true, Image: &Image{Config: v1.ImageConfig{Entrypoint: []string{"/web"}}}}, config: &cri.ContainerConfig{Command: []string{"./migrate"}},
		sandbox: &sandbox{config: &cri.PodSandboxConfig{Annotations: map[string]string{ExitCode: "7"}}},
	}
	if got, err := c.args(); strings.Join(got, " ") != "exit 7" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
