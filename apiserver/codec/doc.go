// Package codec is the API's bodies and answers: which media type a client sends
// and wants, objects in JSON, YAML and protobuf, lists and tables, errors as a
// Status, warnings, compression. What decoding a body takes is known before it is
// decoded (package bounded), and has to find room first (Memory).
package codec
