/** Turns the errors of a schema into one message that names the field and the remedy. */
import type { z } from 'zod';
import { AppError } from './errors.ts';

type Issue = z.core.$ZodIssue;

/** Only the first few faults are reported: clients show only the first 200 bytes of an answer. */
const MAX_ISSUES = 3;
const MAX_FIELD_LENGTH = 80;
/** Messages never show caller-chosen names in these fields: a caller who swaps name and value puts a secret there. */
const SECRET_FIELDS: ReadonlySet<PropertyKey> = new Set(['credentials', 'credentials_v2']);

export interface CheckedPart {
  /** The part of the request that was checked: "body", "query" or "path". */
  where: string;
  /** The checked value. It distinguishes a missing field from a wrong one. */
  input: unknown;
}

/** Builds the 400 (`invalid_request`) for the schema errors in one part of a request. */
export function invalidRequest(error: z.core.$ZodError, part: CheckedPart): AppError {
  const seen = new Set<string>();
  for (const issue of error.issues) seen.add(describeIssue(issue, part));
  return new AppError('invalid_request', [...seen].slice(0, MAX_ISSUES).join('; '));
}

function describeIssue(issue: Issue, part: CheckedPart): string {
  if (issue.code === 'unrecognized_keys') return describeUnknown(issue.keys, issue.path, part.where);
  const nested = issue.code === 'invalid_union' ? findClosest(issue.errors) : undefined;
  if (nested !== undefined) return describeIssue({ ...nested, path: [...issue.path, ...nested.path] }, part);
  const isNameHidden = issue.code === 'invalid_key' && isSecretField(issue.path);
  const field = fieldName(isNameHidden ? issue.path.slice(0, -1) : issue.path);
  if (field === '')
    return `${part.where}: ${issue.code === 'invalid_type' ? 'must be a JSON object' : issue.message}`;
  if (issue.code === 'invalid_key') return `${field}: ${issue.issues[0]?.message ?? issue.message}`;
  if (valueAt(part.input, issue.path) === undefined) return `${field}: is required, ${issue.message}`;
  return `${field}: ${issue.message}`;
}

function describeUnknown(keys: readonly string[], path: readonly PropertyKey[], where: string): string {
  if (isSecretField(path)) return `${fieldName(path)}: has an unknown field; check its spelling or remove it`;
  const names = keys.slice(0, MAX_ISSUES).map((key) => fieldName([...path, key]));
  return `${names.join(', ')}: unknown field in the ${where}; check its spelling or remove it`;
}

function isSecretField([first]: readonly PropertyKey[]): boolean {
  return first !== undefined && SECRET_FIELDS.has(first);
}

/** Returns the first issue of the union member that is closest to the input: the one that failed deepest. */
function findClosest(errors: readonly (readonly Issue[])[]): Issue | undefined {
  const closest = errors.find(([first]) => first?.code !== 'invalid_type' || first.path.length > 0);
  return closest?.[0] ?? errors[0]?.[0];
}

function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  let value = input;
  for (const part of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, part)) return undefined;
    value = (value as Record<PropertyKey, unknown>)[part];
  }
  return value;
}

/** Formats a path as `labels.team` or `paths[0]`. The result is cut, because the caller chooses the names. */
function fieldName(path: readonly PropertyKey[]): string {
  let name = '';
  for (const part of path) {
    if (typeof part === 'number') name += `[${part}]`;
    else name += name === '' ? String(part) : `.${String(part)}`;
  }
  return name.length > MAX_FIELD_LENGTH ? `${name.slice(0, MAX_FIELD_LENGTH)}…` : name;
}
