/**
 * The one spelling of a path. What comes out is what rules are compared with and, letter by letter, what is sent upstream, so
 * that the service cannot read another path than the one that was judged. What servers disagree about (dot segments,
 * backslashes, double encoding) is refused rather than resolved: clients resolve it before they send.
 */
import { decodeSegment, hasHiddenSeparator, isDotSegment } from '@coppice/contract';
import { accept, refuse, type Checked } from './refusal.ts';

export const MAX_PATH_BYTES = 8192;
const MAX_SEGMENTS = 128;

const PATH_CHARACTERS = /^\/[\x21\x22\x24-\x3e\x40-\x5b\x5d-\x7e]*$/u;
const BACKSLASH_OR_CONTROL = /[\\\p{Cc}]/u;
/** Sub-delimiters and the like that may stand as they are. Not ";": parameters are taken off by some servers. */
const NEEDLESSLY_ENCODED = /%(?:24|26|2B|2C|3A|3D|40)/gu;

export interface NormalizedPath {
  /** As it is sent. Letters keep their case: a rule for another case does not match. */
  text: string;
  /** Decoded; one may hold a slash. At least one; the last is empty if the path ends in a slash. */
  segments: readonly string[];
  /** Some servers take `%2F` for a border of segments and some do not. */
  hasEncodedSlash: boolean;
}

/** `raw`: the path of the request's target, without query; empty or beginning with a slash. */
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

/** A guest may write the base path of the service or leave it out. */
export function placeUnderBase(path: NormalizedPath, basePath: string): NormalizedPath {
  if (basePath === '') return path;
  const base = basePath.slice(1).split('/');
  const isThere = base.every((part, index) => path.segments[index] === part);
  return isThere ? path : buildPath([...base, ...path.segments]);
}

function isPlain(segment: string): boolean {
  if (BACKSLASH_OR_CONTROL.test(segment)) return false;
  // Compatibility forms of slashes, which some servers fold.
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
