//go:build !kubectl

package cmd

import (
	"errors"
	"os/exec"
)

// program returns the path of the installed kubectl.
func program() (string, error) {
	path, err := exec.LookPath("kubectl")
	if err != nil {
		return "", errors.New("kubectl is not installed, and not in this build: " +
			"install it (https://kubernetes.io/docs/tasks/tools/), or build monopod with make build TAGS=kubectl; " +
			"monopod logs, why, status and images work without it")
	}
	return path, nil
}
