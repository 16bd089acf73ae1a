// Command certificates makes the test cluster's certificate authority, its certificates and
// its service account keys, so that the harness does not depend on an OpenSSL installation.
//
// It reads a JSON specification from standard input and writes PEM files into its directory.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

type specification struct {
	Directory    string        `json:"directory"`
	Certificates []certificate `json:"certificates"`
	SigningKeys  []string      `json:"signingKeys"`
}

type certificate struct {
	Name          string   `json:"name"`
	CommonName    string   `json:"commonName"`
	Organizations []string `json:"organizations"`
	Hosts         []string `json:"hosts"`
}

func main() {
	var spec specification
	if err := json.NewDecoder(os.Stdin).Decode(&spec); err != nil {
		fail(fmt.Errorf("read specification: %w", err))
	}
	if err := writeAll(spec); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "certificates:", err)
	os.Exit(1)
}

func writeAll(spec specification) error {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	authority, err := template(pkix.Name{CommonName: "moor-e2e"})
	if err != nil {
		return err
	}
	authority.IsCA = true
	authority.BasicConstraintsValid = true
	authority.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	if err := writePair(spec.Directory, "ca", authority, authority, authorityKey, authorityKey); err != nil {
		return err
	}
	for _, wanted := range spec.Certificates {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		leaf, err := template(pkix.Name{CommonName: wanted.CommonName, Organization: wanted.Organizations})
		if err != nil {
			return err
		}
		leaf.KeyUsage = x509.KeyUsageDigitalSignature
		leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if len(wanted.Hosts) > 0 {
			leaf.ExtKeyUsage = append(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		}
		for _, host := range wanted.Hosts {
			if ip := net.ParseIP(host); ip != nil {
				leaf.IPAddresses = append(leaf.IPAddresses, ip)
			} else {
				leaf.DNSNames = append(leaf.DNSNames, host)
			}
		}
		if err := writePair(spec.Directory, wanted.Name, leaf, authority, key, authorityKey); err != nil {
			return err
		}
	}
	for _, name := range spec.SigningKeys {
		if err := writeSigningKey(spec.Directory, name); err != nil {
			return err
		}
	}
	return nil
}

func template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		// Clocks step back now and then on fresh virtual machines.
		NotBefore: time.Now().Add(-24 * time.Hour),
		NotAfter:  time.Now().AddDate(1, 0, 0),
	}, nil
}

func writePair(directory, name string, leaf, issuer *x509.Certificate, key, issuerKey *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, leaf, issuer, &key.PublicKey, issuerKey)
	if err != nil {
		return fmt.Errorf("sign %s: %w", name, err)
	}
	if err := writePEM(filepath.Join(directory, name+".crt"), "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return writeKey(directory, name, key)
}

func writeKey(directory, name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(directory, name+".key"), "EC PRIVATE KEY", der, 0o600)
}

func writeSigningKey(directory, name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := writeKey(directory, name, key); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(directory, name+".pub"), "PUBLIC KEY", der, 0o644)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
