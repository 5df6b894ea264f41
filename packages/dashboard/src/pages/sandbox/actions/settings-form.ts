/** The form of a sandbox's settings: its texts, and the changes that they mean. */
import type { SandboxInfo, SandboxSettings } from '../../../../../sdk/src/index.ts';
import { parseSeconds, writeSeconds } from './duration-text.ts';

export interface SettingsForm {
  name: string;
  timeout: string;
  maxLifetime: string;
  /** In the reader's time zone, as an input of type `datetime-local` has it. Empty for none. */
  endsAt: string;
  /** One label a line, `name=value`. */
  labels: string;
  autoHibernate: boolean;
}

type Errors = Partial<Record<keyof SettingsForm, string>>;

export function fillSettings(record: SandboxInfo): SettingsForm {
  return {
    name: record.name ?? '',
    timeout: writeSeconds(record.timeout),
    maxLifetime: record.maxLifetime === null ? '' : writeSeconds(record.maxLifetime),
    endsAt: record.endsAt === null ? '' : writeLocalTime(record.endsAt),
    labels: Object.entries(record.labels)
      .map(([name, value]) => `${name}=${value}`)
      .join('\n'),
    autoHibernate: record.autoHibernate,
  };
}

/** Returns the changes of a form, only of the fields that differ from the record, and the errors of its texts. */
export function readSettings(
  form: SettingsForm,
  record: SandboxInfo,
): { changes: SandboxSettings; errors: Errors } {
  const before = fillSettings(record);
  const changes: SandboxSettings = {};
  const errors: Errors = {};
  if (form.name !== before.name) changes.name = form.name === '' ? null : form.name;
  if (form.autoHibernate !== before.autoHibernate) changes.autoHibernate = form.autoHibernate;
  if (form.timeout !== before.timeout) {
    changes.timeout = parseSeconds(form.timeout);
    if (changes.timeout === undefined) errors.timeout = 'Write a time such as 90s, 15m or 2h; 0 for never.';
  }
  if (form.maxLifetime !== before.maxLifetime) {
    const seconds = form.maxLifetime.trim() === '' ? null : parseSeconds(form.maxLifetime);
    if (seconds === undefined || seconds === 0)
      errors.maxLifetime = 'Write a time such as 12h or 7d, or nothing for no limit.';
    else changes.maxLifetime = seconds;
  }
  if (form.endsAt !== before.endsAt) changes.expiresAt = form.endsAt === '' ? null : new Date(form.endsAt);
  if (form.labels !== before.labels) {
    const { labels, error } = readLabels(form.labels);
    changes.labels = labels;
    if (error !== undefined) errors.labels = error;
  }
  return { changes, errors };
}

function readLabels(text: string): { labels: Record<string, string>; error?: string } {
  const { variables, error } = readPairs(text);
  return error === undefined ? { labels: variables } : { labels: variables, error };
}

/** Reads lines `name=value`. A line without `=` is a name with an empty value; empty lines are left out. */
export function readPairs(text: string): { variables: Record<string, string>; error?: string } {
  const variables: Record<string, string> = {};
  for (const line of text.split('\n')) {
    if (line.trim() === '') continue;
    const at = line.indexOf('=');
    const name = (at < 0 ? line : line.slice(0, at)).trim();
    if (name === '') return { variables, error: `The line "${line}" has no name before the "=".` };
    if (Object.hasOwn(variables, name)) return { variables, error: `"${name}" occurs twice.` };
    Object.defineProperty(variables, name, {
      value: at < 0 ? '' : line.slice(at + 1),
      enumerable: true,
      configurable: true,
      writable: true,
    });
  }
  return { variables };
}

/** Writes a time in the reader's time zone, to the second. */
function writeLocalTime(timestamp: string): string {
  const at = new Date(timestamp);
  const two = (value: number): string => String(value).padStart(2, '0');
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day}T${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}
