package auth

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// OpenToken reads the token in the file at path, or creates one of 128 random bits.
func OpenToken(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(data)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	token := newToken()
	return token, WriteSecret(path, []byte(token+"\n"))
}

func newToken() string {
	token := make([]byte, 16)
	_, _ = rand.Read(token) // never fails
	return hex.EncodeToString(token)
}

// Kubeconfig returns a kubeconfig for the admin on server, with the token and a client certificate.
func Kubeconfig(server string, authority []byte, client Pair, token string) ([]byte, error) {
	encode := base64.StdEncoding.EncodeToString
	type object = map[string]any
	return yaml.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "monopod",
		"clusters": []object{{"name": "monopod", "cluster": object{
			"server": server, "certificate-authority-data": encode(authority)}}},
		"contexts": []object{{"name": "monopod", "context": object{"cluster": "monopod", "user": "admin"}}},
		"users": []object{{"name": "admin", "user": object{
			"client-certificate-data": encode(client.Cert), "client-key-data": encode(client.Key), "token": token}}},
	})
}

// WriteKubeconfig sets the cluster, user and context of data, a Kubeconfig, in the file at path. It keeps everything
// else in the file, such as contexts, namespaces and clusters that the user added. It replaces a file that is not a
// kubeconfig.
func WriteKubeconfig(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil {
		if data = merge(old, data); string(old) == string(data) {
			return os.Chmod(path, 0o600)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return WriteSecret(path, data)
}

// merge returns the kubeconfig old with the cluster, user and context of ours. It returns old itself if it has them.
func merge(old, ours []byte) []byte {
	var was, next, add map[string]any
	if yaml.Unmarshal(old, &was) != nil || yaml.Unmarshal(old, &next) != nil || yaml.Unmarshal(ours, &add) != nil ||
		next["kind"] != add["kind"] {
		return ours
	}
	fill(next, add, "clusters", "cluster")
	fill(next, add, "users", "user")
	if context := member(add, "contexts", 0); !slices.ContainsFunc(list(next, "contexts"),
		func(is any) bool { return sameTarget(is, context) }) {
		fill(next, add, "contexts", "context")
	}
	if next["current-context"] == nil || next["current-context"] == "" {
		next["current-context"] = add["current-context"]
	}
	if reflect.DeepEqual(was, next) {
		return old
	}
	data, err := yaml.Marshal(next)
	if err != nil {
		return ours
	}
	return data
}

// fill copies the fields of add's only entry in the named list to next, into the entry of the same name or a new one.
func fill(next, add map[string]any, name, field string) {
	entry := member(add, name, 0)
	all := list(next, name)
	i := slices.IndexFunc(all,
		func(one any) bool { m, ok := one.(map[string]any); return ok && m["name"] == entry["name"] })
	if i < 0 {
		next[name] = append(all, entry)
		return
	}
	is := member(next, name, i)
	into, ok := is[field].(map[string]any)
	if !ok {
		is[field] = entry[field]
		return
	}
	from, _ := entry[field].(map[string]any)
	maps.Copy(into, from)
}

func list(config map[string]any, name string) []any {
	all, _ := config[name].([]any)
	return all
}

func member(config map[string]any, name string, i int) map[string]any {
	one, _ := list(config, name)[i].(map[string]any)
	return one
}

// sameTarget reports whether two contexts have the same cluster and user.
func sameTarget(a, b any) bool {
	of := func(context any) (cluster, user any) {
		m, _ := context.(map[string]any)
		inside, _ := m["context"].(map[string]any)
		return inside["cluster"], inside["user"]
	}
	cluster, user := of(a)
	cluster2, user2 := of(b)
	return cluster == cluster2 && user == user2
}
