/** The form that starts a command: its texts, and the options that they mean. */
import type { StartCommandOptions } from '../../../../../sdk/src/index.ts';
import { parseSeconds } from '../actions/duration-text.ts';
import { readPairs } from '../actions/settings-form.ts';

export interface StartForm {
  command: string;
  tag: string;
  cwd: string;
  user: string;
  /** Empty for no limit. */
  timeout: string;
  /** One variable a line, `NAME=value`. */
  env: string;
  /** Standard input stays open for lines that the page sends. */
  isInteractive: boolean;
}

export const EMPTY_FORM: StartForm = {
  command: '',
  tag: '',
  cwd: '',
  user: '',
  timeout: '',
  env: '',
  isInteractive: false,
};

type Errors = Partial<Record<keyof StartForm, string>>;

/** Returns the options of a form, without those that are left empty, and the errors of its texts. */
export function readStart(form: StartForm): { options: StartCommandOptions; errors: Errors } {
  const options: StartCommandOptions = {};
  const errors: Errors = {};
  if (form.tag.trim() !== '') options.tag = form.tag.trim();
  if (form.cwd.trim() !== '') options.cwd = form.cwd.trim();
  if (form.user.trim() !== '') options.user = form.user.trim();
  if (form.isInteractive) options.stdin = true;
  if (form.timeout.trim() !== '') {
    options.timeout = parseSeconds(form.timeout);
    if (options.timeout === undefined) errors.timeout = 'Write a time such as 90s, 15m or 2h.';
  }
  const { variables, error } = readPairs(form.env);
  if (error !== undefined) errors.env = error;
  else if (Object.keys(variables).length > 0) options.env = variables;
  return { options, errors };
}
