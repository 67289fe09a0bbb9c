// Package bootstraptoken has what Monopod's bootstrap tokens have in addition to Kubernetes' own
// (k8s.io/cluster-bootstrap): a number of uses.
package bootstraptoken

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// UsesKey is the key of a token's Secret with the number of machines that can still join with it. A Secret without it
// has no limit. Kubernetes ignores the key.
const UsesKey = "uses"

// NameTaken is the reason why a request is denied while another machine joins with the same name.
const NameTaken = "NameTaken"

// Group is the group of the users of tokens that kubeadm and Monopod create.
const Group = "system:bootstrappers:kubeadm:default-node-token"

// Uses returns how many machines can still join with the token; a value that is not a positive number is 0. It returns
// false if the number is not limited.
func Uses(token *corev1.Secret) (left int, limited bool) {
	text, limited := token.Data[UsesKey]
	left, err := strconv.Atoi(string(text))
	if err != nil {
		left = 0
	}
	return max(left, 0), limited
}
