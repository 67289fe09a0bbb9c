package env_test

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/env"
)

func TestParseFile(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]map[string]string{
		"":                                 {},
		"\n  \n\t\n":                       {},
		"A='1'":                            {"A": "1"},
		"A='1'\nB='2'\n":                   {"A": "1", "B": "2"},
		"  A = '1'  \n":                    {"A": "1"},
		"A='1'\r\nB='2'\r\n":               {"A": "1", "B": "2"},
		"# C='3'\n  # '\nA='# no comment'": {"A": "# no comment"},
		"A='one\n\n# two\nthree'\nB='4'":   {"A": "one\n\n# two\nthree", "B": "4"},
		`A='\n $B ${B} $(B) "x" \'`:        {"A": `\n $B ${B} $(B) "x" \`},
		"A=''":                             {"A": ""},
		"A='a=b'":                          {"A": "a=b"},
		"A='1'\nA='2'":                     {"A": "2"},
		"app.name-1='x'":                   {"app.name-1": "x"},
		"A='grüße'":                        {"A": "grüße"},
	} {
		if got, err := env.ParseFile([]byte(in)); err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"A=1":               "line 1: the value must be in single quotes",
		`A="1"`:             "line 1: the value must be in single quotes",
		"A=":                "line 1: the value must be in single quotes",
		"A=\n'1'":           "line 1: the value must be in single quotes",
		"\nA='1'\nB":        "line 3: must be NAME='value'",
		"='1'":              "line 1: the name is not valid: ",
		"grün='1'":          "line 1: the name is not valid: ",
		"A='1":              "line 1: the closing quote of the value is missing",
		"A='1\n2\n":         "line 1: the closing quote of the value is missing",
		"A='1\n2'\nB='2'x":  "line 3: nothing may follow the closing quote of the value",
		"A='1''2'":          "line 1: nothing may follow the closing quote of the value",
		"A='1' # why":       "line 1: nothing may follow the closing quote of the value",
		"A='1'\nB='\x00'\n": "line 2: a NUL byte cannot be part of a variable",
	} {
		if got, err := env.ParseFile([]byte(in)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add("A='1'\n# x\n\nB = 'two\nlines' \n")
	f.Fuzz(func(t *testing.T, text string) {
		vars, err := env.ParseFile([]byte(text))
		if err != nil {
			return
		}
		again := ""
		for name, value := range vars {
			again += name + "='" + value + "'\n"
		}
		if got, err := env.ParseFile([]byte(again)); err != nil || !maps.Equal(got, vars) {
			t.Errorf("%q: parsed %q, then %q from its own output, error %v", text, vars, got, err)
		}
	})
}

func TestVariablesOfFiles(t *testing.T) {
	t.Parallel()
	broken := errors.New("it points outside the volume")
	files := map[string]string{"ok.env": "A='1'\nB='$(A)'", "bad.env": "A=1"}
	facts := env.Facts{Pod: &corev1.Pod{}, File: func(volume, path string) ([]byte, error) {
		text, ok := files[path]
		switch {
		case volume != "v" || path == "out.env":
			return nil, broken
		case !ok:
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		}
		return []byte(text), nil
	}}
	from := func(volume, path, key string, optional bool) (string, error) {
		vars, err := env.Make(
			&corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "first"}, {Name: "X", ValueFrom: &corev1.EnvVarSource{
				FileKeyRef: &corev1.FileKeySelector{VolumeName: volume, Path: path, Key: key, Optional: &optional}}}}}, facts,
			source{})
		i := slices.IndexFunc(vars, func(v env.Var) bool { return v.Name == "X" })
		if i < 0 {
			return "unset", err
		}
		return "=" + vars[i].Value, err
	}
	for _, c := range []struct {
		volume, path, key string
		optional          bool
		want              string // the value or the error
	}{
		{"v", "ok.env", "A", false, "=1"},
		{"v", "ok.env", "B", true, "=$(A)"},
		{"v", "ok.env", "C", true, "unset"},
		{"v", "gone.env", "A", true, "unset"},
		{"v", "ok.env", "C", false, `couldn't find key C in file "ok.env" of volume "v"`},
		{"v", "gone.env", "A", false, `file "gone.env" not found in volume "v"`},
		{"v", "bad.env", "A", true, `file "bad.env" of volume "v": line 1: the value must be in single quotes`},
		{"v", "out.env", "A", true, `cannot read file "out.env" of volume "v": it points outside the volume`},
	} {
		got, err := from(c.volume, c.path, c.key, c.optional)
		if err != nil {
			if !errors.Is(err, env.ErrConfig) {
				t.Errorf("%+v: the error is not ErrConfig: %v", c, err)
			}
			got = strings.TrimPrefix(err.Error(), env.ErrConfig.Error()+": ")
		}
		if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
