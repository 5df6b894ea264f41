import type { HostRecord } from '../../../../contract/src/accounts/operator.ts';

type HostRunner = HostRecord['runners'][number];
export type Measured = NonNullable<HostRunner['measured']>;

/** Adds up what the connected runners have measured. Names that differ are listed. Undefined without any. */
export function sumRunners(runners: readonly HostRunner[]): Measured | undefined {
  const [first, ...others] = runners.flatMap(({ state, measured }) =>
    state === 'connected' ? (measured ?? []) : [],
  );
  return first && others.reduce(add, first);
}

function add(one: Measured, other: Measured): Measured {
  const { versions } = one;
  return {
    ...(sum(one, other) as Measured),
    accelerator: one.accelerator === other.accelerator ? one.accelerator : 'tcg',
    confinement: join(one.confinement, other.confinement),
    versions: {
      qemu: join(versions.qemu, other.versions.qemu),
      kernel: join(versions.kernel, other.versions.kernel),
      agent: join(versions.agent, other.versions.agent),
    },
  };
}

type Numbers = { [name: string]: Numbers | number | string };

/** Adds the numbers of two objects, at all depths. */
function sum(one: Numbers, other: Numbers): Numbers {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  return Object.fromEntries(
    [...names].map((name) => {
      const [a, b] = [one[name], other[name]];
      if (typeof a === 'object' || typeof b === 'object') return [name, sum(toObject(a), toObject(b))];
      return [name, toNumber(a) + toNumber(b)];
    }),
  );
}

function toObject(value: Numbers | number | string | undefined): Numbers {
  return typeof value === 'object' ? value : {};
}

function toNumber(value: Numbers | number | string | undefined): number {
  return typeof value === 'number' ? value : 0;
}

function join(one: string, other: string): string {
  const names = new Set([...one.split(', '), other]);
  return [...names].toSorted().join(', ');
}
