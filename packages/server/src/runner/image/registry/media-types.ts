/** Supported media types of manifests. */
import { RegistryFault } from './registry-fault.ts';

export const MANIFEST_TYPES = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.docker.distribution.manifest.v2+json',
];

/**
 * Throws early, with a clearer error than the manifest itself would cause, for a type that is no manifest. The contents
 * decide in the end, as a registry may name no type at all.
 */
export function checkManifestType(header: string | undefined, host: string): void {
  const type = header?.split(';')[0]?.trim().toLowerCase() ?? '';
  if (/^application\/vnd\.docker\.distribution\.manifest\.v1\b/u.test(type)) {
    throw new RegistryFault('unsupported', 'it is stored as a Docker schema 1 manifest; push it again');
  }
  const isJson =
    type === '' || type.endsWith('json') || type === 'application/octet-stream' || type === 'text/plain';
  if (!isJson) throw new RegistryFault('not-a-registry', host);
}
