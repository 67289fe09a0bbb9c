package auth

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
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

// WriteKubeconfig writes the file at path unless its content is the same.
func WriteKubeconfig(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return os.Chmod(path, 0o600)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return WriteSecret(path, data)
}
