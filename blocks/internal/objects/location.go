package objects

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// Location names a bucket. It contains no secret: credentials come from the standard chain of the S3 client.
type Location struct {
	Bucket string
	// Prefix is put before every key, with a slash between; it may be empty.
	Prefix string
	// Endpoint is the origin of the server; empty for that of AWS in the region.
	Endpoint    string
	Region      string
	IsPathStyle bool
	// CAPath is a PEM file with the only authorities to trust; empty for those of the system.
	CAPath string
}

const (
	usualRegion     = "us-east-1"
	maxPrefixLength = 100
	locationForm    = "must be of the form s3://bucket/prefix?endpoint=https://host&region=name, or directory"
)

// Open opens the store of the setting COPPICE_OBJECT_STORE; directory is the path of the default store.
func Open(ctx context.Context, setting, directory string) (Store, error) {
	if setting == "" || setting == "directory" {
		return OpenDirectory(directory)
	}
	location, err := ParseLocation(setting)
	if err != nil {
		return nil, fmt.Errorf("the setting of the object store %w", err)
	}
	return OpenS3(ctx, location)
}

// ParseLocation parses the setting of the service. Errors do not repeat it, because someone may have put a secret there.
func ParseLocation(text string) (Location, error) {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme != "s3" || parsed.Fragment != "" || !isBucket(parsed.Host) {
		return Location{}, errors.New(locationForm)
	}
	if parsed.User != nil {
		return Location{}, errors.New("must not contain credentials; give them as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	query, err := readQuery(parsed.RawQuery)
	if err != nil {
		return Location{}, err
	}
	location := Location{Bucket: parsed.Host, Region: query["region"], CAPath: query["ca"]}
	location.Prefix = strings.TrimSuffix(strings.TrimPrefix(parsed.Path, "/"), "/")
	if location.Prefix != "" && (CheckKey(location.Prefix) != nil || len(location.Prefix) > maxPrefixLength) {
		return Location{}, fmt.Errorf("must have a prefix of at most %d of A–Z, a–z, 0–9, \".\", \"_\", \"-\" and \"/\"", maxPrefixLength)
	}
	if location.CAPath != "" && !filepath.IsAbs(location.CAPath) {
		return Location{}, errors.New("ca= must be an absolute path of a PEM file")
	}
	return location, location.setServer(query)
}

func (l *Location) setServer(query map[string]string) error {
	allowsPlainHTTP, err := readFlag(query, "plain_http", false)
	if err != nil {
		return err
	}
	if endpoint, ok := query["endpoint"]; ok {
		if l.Endpoint, err = parseEndpoint(endpoint, allowsPlainHTTP); err != nil {
			return err
		}
		if l.Region == "" {
			l.Region = usualRegion
		}
	}
	if l.Region == "" {
		return errors.New("must have region=…, or endpoint=… for another server than that of AWS")
	}
	l.IsPathStyle, err = readFlag(query, "path_style", l.Endpoint != "")
	return err
}

func readQuery(text string) (map[string]string, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, errors.New(locationForm)
	}
	query := map[string]string{}
	for name, value := range values {
		switch name {
		case "endpoint", "region", "path_style", "ca", "plain_http":
		default:
			// An unknown name may be a secret that contains "&".
			return nil, errors.New("has an unknown parameter; known are endpoint, region, path_style, ca, plain_http")
		}
		if len(value) != 1 {
			return nil, fmt.Errorf("has %s= twice", name)
		}
		query[name] = value[0]
	}
	return query, nil
}

func readFlag(query map[string]string, name string, standard bool) (bool, error) {
	value, ok := query[name]
	if !ok {
		return standard, nil
	}
	if value != "true" && value != "false" {
		return false, fmt.Errorf("%s= must be true or false", name)
	}
	return strconv.ParseBool(value)
}

func parseEndpoint(text string, allowsPlainHTTP bool) (string, error) {
	parsed, err := url.Parse(text)
	isOrigin := err == nil && parsed.Host != "" && parsed.User == nil && parsed.RawQuery == "" &&
		parsed.Fragment == "" && strings.Trim(parsed.Path, "/") == ""
	if !isOrigin || parsed.Scheme != "https" && parsed.Scheme != "http" {
		return "", errors.New("endpoint= must be of the form https://host or https://host:port")
	}
	if parsed.Scheme == "http" && !allowsPlainHTTP && !isLoopback(parsed.Hostname()) {
		return "", errors.New("endpoint= is plain HTTP, by which anyone on the path could read the objects; use https://, or add plain_http=true")
	}
	return parsed.Scheme + "://" + parsed.Host, nil
}

func isLoopback(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || address != nil && address.IsLoopback()
}

func isBucket(name string) bool {
	if len(name) < 3 || len(name) > 63 {
		return false
	}
	for i, c := range []byte(name) {
		isEdge := i == 0 || i == len(name)-1
		isAlphanumeric := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !isAlphanumeric && (isEdge || c != '.' && c != '-') {
			return false
		}
	}
	return true
}
