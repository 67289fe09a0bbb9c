// Package podspec is what is wrong with the spec of a pod or of a template, and how
// its containers are walked. What may change of a pod that exists is package pod's.
package podspec
