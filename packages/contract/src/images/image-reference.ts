/**
 * References to OCI images, parsed by Docker's rules: `node:22-slim` means `docker.io/library/node:22-slim`, and the
 * first component is a registry only if it has a dot or a port or is `localhost`. Unlike in Docker, a missing tag does
 * not mean `latest`: two sandboxes created from the same reference must get the same image.
 */
import { AppError } from '../errors.ts';
import {
  BUILT_REGISTRY,
  BUILTIN_REGISTRY,
  canonicalRegistry,
  DEFAULT_REGISTRY,
  isRegistryHost,
  LOCAL_REGISTRY,
  namesRegistry,
} from './registry-name.ts';

export interface ImageReference {
  /** Host and port of the registry, {@link BUILTIN_REGISTRY}, {@link LOCAL_REGISTRY} or {@link BUILT_REGISTRY}. */
  registry: string;
  /** Path within the registry, `library/node`. */
  repository: string;
  tag?: string;
  /** `sha256:` and 64 hex digits. If there is also a tag, the digest decides and the tag is only displayed. */
  digest?: string;
}

export const MAX_IMAGE_REFERENCE_LENGTH = 512;
const MAX_REPOSITORY_LENGTH = 255;

const OWN_REGISTRIES: ReadonlySet<string> = new Set([BUILTIN_REGISTRY, LOCAL_REGISTRY, BUILT_REGISTRY]);
const FLOATING_TAGS: ReadonlySet<string> = new Set(['latest', 'lts', 'stable']);
const REPOSITORY = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$/u;
const TAG = /^[\w][\w.-]{0,127}$/u;
const DIGEST = /^sha256:[0-9a-f]{64}$/u;

/**
 * Parses `[registry/]repository[:tag][@digest]`. Throws `invalid_image` if the text is malformed, `image_not_pinned` if
 * it has neither digest nor tag, or a floating tag and no digest.
 */
export function parseImageReference(text: string): ImageReference {
  if (text.length > MAX_IMAGE_REFERENCE_LENGTH) {
    throw new AppError('invalid_image', `image: longer than ${MAX_IMAGE_REFERENCE_LENGTH} characters`);
  }
  if (text === '') throw new AppError('invalid_image', 'image: empty; write for example "node:22-slim"');
  if (/^[a-z][a-z0-9+.-]*:\/\//iu.test(text)) {
    throw refuse(text, 'it must not be a URL; remove everything up to "://"');
  }
  const { name, tag, digest } = splitSuffixes(text);
  const { registry, repository } = splitRegistry(name);
  checkRegistry(text, registry);
  checkRepository(text, registry, repository);
  if (tag !== undefined && !TAG.test(tag)) {
    throw refuse(text, `the tag ${quote(tag)} may have letters, digits, "_", "." and "-", at most 128`);
  }
  if (digest !== undefined && !DIGEST.test(digest)) {
    throw refuse(text, 'the digest must be "sha256:" and 64 lower-case hex digits');
  }
  const reference = {
    registry,
    repository,
    ...(tag === undefined ? {} : { tag }),
    ...(digest === undefined ? {} : { digest }),
  };
  checkPinned(text, reference);
  return reference;
}

/** Formats the full form, which parses back to the same reference: `docker.io/library/node:22-slim@sha256:…`. */
export function formatImageReference(reference: ImageReference): string {
  const tag = reference.tag === undefined ? '' : `:${reference.tag}`;
  const digest = reference.digest === undefined ? '' : `@${reference.digest}`;
  return `${reference.registry}/${reference.repository}${tag}${digest}`;
}

/** Whether the image exists only on this machine and is never fetched: built at set-up, imported, or built from steps. */
export function isBuiltinImage(reference: ImageReference): boolean {
  return OWN_REGISTRIES.has(reference.registry);
}

/** Whether the image was built from steps and belongs to one organization. */
export function isBuiltImage(reference: ImageReference): boolean {
  return reference.registry === BUILT_REGISTRY;
}

function splitSuffixes(text: string): { name: string; tag: string | undefined; digest: string | undefined } {
  const at = text.indexOf('@');
  const digest = at === -1 ? undefined : text.slice(at + 1);
  const rest = at === -1 ? text : text.slice(0, at);
  // A colon before the last slash belongs to a port.
  const colon = rest.indexOf(':', rest.lastIndexOf('/') + 1);
  if (colon === -1) return { name: rest, tag: undefined, digest };
  return { name: rest.slice(0, colon), tag: rest.slice(colon + 1), digest };
}

function splitRegistry(name: string): { registry: string; repository: string } {
  const slash = name.indexOf('/');
  const first = slash === -1 ? '' : name.slice(0, slash);
  const rest = name.slice(slash + 1);
  if (OWN_REGISTRIES.has(first)) return { registry: first, repository: rest };
  const isHost = namesRegistry(first);
  const registry = isHost ? canonicalRegistry(first) : DEFAULT_REGISTRY;
  const repository = isHost ? rest : name;
  const isOfficial = registry === DEFAULT_REGISTRY && !repository.includes('/');
  return { registry, repository: isOfficial ? `library/${repository}` : repository };
}

function checkRegistry(text: string, registry: string): void {
  if (!isRegistryHost(registry)) {
    throw refuse(text, `${quote(registry)} is not a registry host: write "host" or "host:port"`);
  }
}

function checkRepository(text: string, registry: string, repository: string): void {
  if (repository.length + registry.length > MAX_REPOSITORY_LENGTH) {
    throw refuse(text, `the name is longer than ${MAX_REPOSITORY_LENGTH} characters`);
  }
  if (REPOSITORY.test(repository)) return;
  if (REPOSITORY.test(repository.toLowerCase())) throw refuse(text, 'the name must be in lower case');
  throw refuse(
    text,
    'the name must be lower-case letters and digits, separated by "/", ".", "_" or "-"; write for example "node:22-slim"',
  );
}

function checkPinned(text: string, reference: ImageReference): void {
  if (reference.digest !== undefined) return;
  if (reference.tag === undefined) {
    throw new AppError(
      'image_not_pinned',
      `image ${quote(text)} has no tag, which means latest; add the tag of a version or a digest, for example "node:22-slim"`,
    );
  }
  if (!FLOATING_TAGS.has(reference.tag.toLowerCase())) return;
  throw new AppError(
    'image_not_pinned',
    `image ${quote(text)} has the floating tag ${quote(reference.tag)}; name a version or a digest, for example "node:22-slim"`,
  );
}

function refuse(text: string, reason: string): AppError {
  return new AppError('invalid_image', `image ${quote(text)} is not an image reference: ${reason}`);
}

/** Quotes at most 80 characters. Clients show 200 bytes of a message, and the reason must be among them. */
function quote(text: string): string {
  const MAX_SHOWN = 80;
  return JSON.stringify(text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text);
}
