/**
 * Normalizes a path to one spelling. The result is compared with the rules and is sent upstream byte for byte, so that
 * the service cannot read another path than the judged one. Forms that servers read differently (dot segments,
 * backslashes, double encoding) are refused and not resolved: clients resolve them before they send.
 */
import { decodeSegment, hasHiddenSeparator, isDotSegment } from '@coppice/contract';
import { accept, refuse, type Checked } from './refusal.ts';

export const MAX_PATH_BYTES = 8192;
const MAX_SEGMENTS = 128;

const PATH_CHARACTERS = /^\/[\x21\x22\x24-\x3e\x40-\x5b\x5d-\x7e]*$/u;
const BACKSLASH_OR_CONTROL = /[\\\p{Cc}]/u;
/** Sub-delimiters and similar characters that need no encoding. Not ";": some servers remove path parameters. */
const NEEDLESSLY_ENCODED = /%(?:24|26|2B|2C|3A|3D|40)/gu;

/** A path in its only spelling. */
export interface NormalizedPath {
  /** The path as it is sent. Letters keep their case: a rule in another case does not match. */
  text: string;
  /** Decoded segments, at least one. A segment may contain a slash. The last is empty if the path ends in a slash. */
  segments: readonly string[];
  /** True if a segment contains `%2F`, which only some servers read as a separator. */
  hasEncodedSlash: boolean;
}

/** Normalizes `raw`, the path of the request target without the query. It is empty or starts with a slash. */
export function normalizePath(raw: string): Checked<NormalizedPath> {
  if (raw.length > MAX_PATH_BYTES) return refuse('path-too-long');
  if (raw === '') return accept(buildPath(['']));
  if (!PATH_CHARACTERS.test(raw)) return refuse('path');
  const parts = raw.slice(1).split('/');
  const kept = parts.filter((part, index) => part !== '' || index === parts.length - 1);
  if (kept.length > MAX_SEGMENTS) return refuse('path-too-long');
  const segments: string[] = [];
  for (const part of kept) {
    const segment = decodeSegment(part);
    if (segment === undefined || !isPlain(segment)) return refuse('path');
    segments.push(segment);
  }
  return accept(buildPath(segments));
}

/** Adds the base path of the service if the guest has left it out. */
export function placeUnderBase(path: NormalizedPath, basePath: string): NormalizedPath {
  if (basePath === '') return path;
  const base = basePath.slice(1).split('/');
  const isThere = base.every((part, index) => path.segments[index] === part);
  return isThere ? path : buildPath([...base, ...path.segments]);
}

function isPlain(segment: string): boolean {
  if (BACKSLASH_OR_CONTROL.test(segment)) return false;
  // Some servers fold compatibility forms of slashes.
  const folded = segment.normalize('NFKC');
  if (folded.includes('\\') || countSlashes(folded) !== countSlashes(segment)) return false;
  return segment.split('/').every((part) => !isDotSegment(part) && !hasHiddenSeparator(part));
}

function countSlashes(text: string): number {
  return text.split('/').length;
}

function buildPath(segments: readonly string[]): NormalizedPath {
  return {
    text: `/${segments.map(encodeSegment).join('/')}`,
    segments,
    hasEncodedSlash: segments.some((segment) => segment.includes('/')),
  };
}

function encodeSegment(segment: string): string {
  return encodeURIComponent(segment).replaceAll(NEEDLESSLY_ENCODED, (encoded) => decodeURIComponent(encoded));
}
