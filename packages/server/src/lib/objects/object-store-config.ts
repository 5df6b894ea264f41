/** The bucket of an S3 server in which the objects are. It contains no secret: credentials come from elsewhere. */
export interface S3Location {
  bucket: string;
  /** Put before every key, with a slash between; may be empty. */
  prefix: string;
  /** Origin of the server; undefined for the one of AWS in the region. */
  endpoint: string | undefined;
  region: string;
  /** Whether the bucket is in the path of a request, not in the host name. */
  isPathStyle: boolean;
  /** Absolute path of a PEM file with the only authorities to trust; undefined: those of the system. */
  caPath: string | undefined;
}

export type ObjectStoreConfig = { kind: 'directory' } | ({ kind: 's3' } & S3Location);
