import { BuildStep, MAX_RUN_BYTES } from '@coppice/contract';

/** A step of a build. One of a Dockerfile has a line, and its words have quotes and variables that are not replaced yet. */
export type PlannedStep = BuildStep & {
  line?: number;
  /** Sets an argument: to the value, or to `raw` once its variables are replaced. */
  arg?: { name: string; value: string | undefined; raw: string | undefined };
  /** Whether `run` is a script that its first line names the interpreter of, and no command for the shell. */
  isScript?: boolean;
  /** Whether `copy` is an ADD: Docker would unpack an archive that it names. */
  isAdd?: boolean;
  /** Whether `copy` is one of several sources, and only variables decide whether its target is a directory. */
  needsDirectory?: boolean;
};

/** Arguments that every RUN has without an ARG, as in Docker; in lower case, too. */
const PROXIES = ['HTTP_PROXY', 'HTTPS_PROXY', 'FTP_PROXY', 'NO_PROXY', 'ALL_PROXY'];

export function isProxy(name: string): boolean {
  return PROXIES.some((proxy) => name === proxy || name === proxy.toLowerCase());
}

/** Whether a target of COPY is a directory by its name alone. */
export function namesDirectory(target: string): boolean {
  return /(?:^|\/)\.{0,2}$/u.test(target);
}

export const SEVERAL_SOURCES = 'several sources need a target that ends with a slash';

/** Fields as a Dockerfile writes them. */
const NAMES: Readonly<Record<string, string>> = {
  'copy.from_path': 'the source',
  'copy.to': 'the target',
  'copy.owner': '--chown',
  'copy.mode': '--chmod',
  env: 'ENV',
  workdir: 'WORKDIR',
  user: 'USER',
};

/** Returns what is wrong with a step of a Dockerfile whose words are expanded, by the limits of all steps. */
export function findFault({ run, copy, env, workdir, user }: PlannedStep): string | undefined {
  const parsed = BuildStep.safeParse(withoutUndefined({ run, copy, env, workdir, user }));
  const issue = parsed.error?.issues[0];
  if (issue === undefined) return undefined;
  if (run !== undefined)
    return `RUN: must not be empty, and have at most ${MAX_RUN_BYTES} bytes; copy a longer script from the context`;
  const [field, name] = issue.path.map(String);
  const path = field === 'copy' ? `${field}.${name ?? ''}` : (field ?? '');
  const variable = field === 'env' && name !== undefined ? ` ${name}` : '';
  return `${NAMES[path] ?? path}${variable}: ${issue.message}`;
}

function withoutUndefined(fields: object): object {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
