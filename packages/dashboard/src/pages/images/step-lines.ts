import type { BuildStep } from '../../../../sdk/src/index.ts';

const KINDS = ['RUN', 'ENV', 'WORKDIR', 'USER'] as const;
export type StepKind = (typeof KINDS)[number];

/** A step as the form has it. */
export interface StepLine {
  id: number;
  kind: StepKind;
  text: string;
}

export const STEP_KINDS: readonly (readonly [StepKind, string])[] = [
  ['RUN', 'Run a command'],
  ['ENV', 'Set a variable'],
  ['WORKDIR', 'Change the directory'],
  ['USER', 'Change the user'],
];

export const STEP_EXAMPLES: Readonly<Record<StepKind, string>> = {
  RUN: 'npm install -g pnpm',
  ENV: 'NODE_ENV=production',
  WORKDIR: '/srv/app',
  USER: '1000:1000',
};

/** Returns the fault of a step; undefined if it has none. The service checks the rest. */
export function findStepFault({ kind, text }: StepLine): string | undefined {
  if (text.trim() === '') return 'is empty; fill it in or remove it';
  if (kind === 'ENV' && !/^[A-Za-z_]\w*=/u.test(text.trim())) return 'must have the form NAME=value';
  return undefined;
}

export function toBuildStep({ kind, text }: StepLine): BuildStep {
  if (kind === 'RUN') return { run: text };
  const value = text.trim();
  if (kind === 'WORKDIR') return { workdir: value };
  if (kind === 'USER') return { user: value };
  const equals = value.indexOf('=');
  return { env: { [value.slice(0, equals)]: value.slice(equals + 1) } };
}
