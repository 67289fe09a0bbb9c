package packaging_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// fakeProgram is a program of a release for the role: install copies it, as monopod install does, and says what it did.
const fakeProgram = `#!/bin/sh
# version %s
echo "$1" >>%[2]s/calls
case $1 in
upgrade) cp "$2" %[2]s/bin/monopod ;;
install)
	if cmp -s "$0" %[2]s/bin/monopod && [ "$*" = "$(cat %[2]s/flags)" ]; then
		echo "monopod is already installed and runs; nothing to do"
		exit
	fi
	mkdir -p %[2]s/bin
	cp "$0" %[2]s/bin/monopod
	echo "$*" >%[2]s/flags
	;;
esac
`

// The role installs, changes nothing when it runs again, changes flags, upgrades, and refuses a damaged program.
func TestAnsibleRole(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ansible-playbook"); err != nil {
		t.Skip("skipped: ansible-playbook is not installed")
	}
	dir := t.TempDir()
	s := newSite(t)
	release := func(version string) {
		s.files[program()] = fmt.Appendf(nil, fakeProgram, version, dir)
		s.sign(t)
		for name, content := range s.files {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	play := func(from, flags string) (recap string, err error) {
		playbook := fmt.Sprintf(`
- hosts: localhost
  connection: local
  gather_subset: ["!all"]
  roles:
    - role: monopod
      vars: {%s, monopod_flags: [%s], monopod_data_dir: %[3]s/data, monopod_program: %[3]s/bin/monopod,
        monopod_release_dir: %[3]s/release}
`, from, flags, dir)
		file := filepath.Join(dir, "play.yml")
		if err := os.WriteFile(file, []byte(playbook), 0o600); err != nil {
			t.Fatal(err)
		}
		roles, err := filepath.Abs("ansible/roles")
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("ansible-playbook", "-i", "localhost,", file)
		cmd.Env = append(os.Environ(), "ANSIBLE_ROLES_PATH="+roles, "HOME="+dir, "LC_ALL=C.UTF-8")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	url, src := "monopod_url: '"+s.url+"'", "monopod_src: '"+dir+"'"
	for _, step := range []struct {
		version, from, flags string
		changed              bool
		calls                string
	}{
		{"1", url, "--max-pods=5", true, "install "},
		{"1", url, "--max-pods=5", false, "install "},
		{"1", src, "--max-pods=6", true, "install "},
		{"2", src, "--max-pods=6", true, "upgrade install "},
	} {
		release(step.version)
		out, err := play(step.from, step.flags)
		if err != nil || regexp.MustCompile(`changed=0 `).MatchString(out) == step.changed {
			t.Fatalf("%+v: %v\n%s", step, err, out)
		}
		calls, _ := os.ReadFile(filepath.Join(dir, "calls")) // compared
		_ = os.Remove(filepath.Join(dir, "calls"))
		if got := strings.ReplaceAll(string(calls), "\n", " "); got != step.calls {
			t.Errorf("%+v: calls %q", step, got)
		}
	}
	release("3")
	s.files[program()] = append(s.files[program()], '\n')
	if err := os.WriteFile(filepath.Join(dir, program()), s.files[program()], 0o644); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"url": url, "src": src} {
		if out, err := play(from, ""); err == nil || !strings.Contains(out, "failed=1") {
			t.Errorf("a damaged program from %s: %v\n%s", name, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "calls")); err == nil {
		t.Error("a damaged program was executed")
	}
}

// load reads a file with YAML.
func load(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// cloud-init accepts its example, and the command of the example runs the script of a site.
func TestCloudInit(t *testing.T) {
	t.Parallel()
	var data struct {
		WriteFiles []struct{ Path, Permissions, Content string } `json:"write_files"`
		RunCmd     []any                                         `json:"runcmd"`
	}
	const file = "cloud-init/user-data.yaml"
	load(t, file, &data)
	for _, f := range data.WriteFiles {
		if err := yaml.UnmarshalStrict([]byte(f.Content), &map[string]any{}); err != nil {
			t.Errorf("%s: %v", f.Path, err)
		}
	}
	words, _ := data.RunCmd[len(data.RunCmd)-1].([]any)
	if len(words) != 3 {
		t.Fatalf("the last command is %v", data.RunCmd)
	}
	s := newSite(t)
	s.files["install.sh"] = []byte(s.script(t, s.key))
	command := strings.NewReplacer("https://example.org/monopod", s.url, "/run/", t.TempDir()+"/").Replace(words[2].(string))
	if calls, out, err := run(t, command, tools(t, "curl", asRoot, noUnit), nil); calls != "install;" {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := exec.LookPath("cloud-init"); err != nil {
		t.Skip("skipped: cloud-init, which checks the schema, is not installed")
	}
	if out, err := exec.Command("cloud-init", "schema", "--config-file", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// The steps of the action run the commands of its input with monopod run.
func TestAction(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("skipped: GitHub's runners have other processors")
	}
	var action struct {
		Inputs map[string]struct {
			Required bool
			Default  string
		}
		Runs struct {
			Steps []struct {
				Run string
				Env map[string]string
			}
		}
	}
	load(t, "github/action.yml", &action)
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Uses string
				With map[string]string
			}
		}
	}
	load(t, "github/workflow.yml", &workflow)
	for _, step := range workflow.Jobs["test"].Steps {
		for name := range step.With {
			if _, ok := action.Inputs[name]; !ok && strings.HasSuffix(step.Uses, "/monopod") {
				t.Errorf("the workflow sets %s, which is not an input of the action", name)
			}
		}
	}
	s := newSite(t)
	inputs := map[string]string{"url": s.url, "run": "echo $KUBECONFIG", "images": "a.tar b.tar", "runtime": "fake"}
	for name, input := range action.Inputs {
		if input.Required && inputs[name] == "" {
			t.Errorf("the action requires %s", name)
		}
	}
	temp := t.TempDir()
	var all strings.Builder
	for _, step := range action.Runs.Steps {
		env := []string{"RUNNER_TEMP=" + temp}
		for name, value := range step.Env {
			input := strings.TrimSuffix(strings.TrimPrefix(value, "${{ inputs."), " }}")
			env = append(env, name+"="+inputs[input])
		}
		calls, out, err := run(t, step.Run, tools(t, "curl", "mkdir", "install"), env)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		all.WriteString(calls)
	}
	if want := "run --runtime=fake --image=a.tar --image=b.tar -- sh -ec echo $KUBECONFIG;"; all.String() != want {
		t.Errorf("the calls are %q, want %q", all.String(), want)
	}
	s.files[program()][20] ^= 1
	if _, out, err := run(t, action.Runs.Steps[0].Run, tools(t, "curl", "mkdir", "install"),
		[]string{"RUNNER_TEMP=" + temp, "URL=" + s.url}); err == nil {
		t.Errorf("a damaged program was accepted: %s", out)
	}
}
