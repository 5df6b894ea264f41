import { useSignal } from '@preact/signals';
import type { Coppice } from '../../../../../sdk/src/index.ts';
import { useResource } from '../../../service/resource.ts';
import { Badge, type Tone } from '../../../ui/Badge.tsx';
import { Button } from '../../../ui/Button.tsx';
import { GuestText } from '../../../ui/GuestText.tsx';
import { Dialog } from '../../../ui/Dialog.tsx';
import { Checkbox, TextField } from '../../../ui/Field.tsx';
import { formatBytes, formatMoment, formatNumber } from '../../../ui/format.ts';
import { Failure, Loaded } from '../../../ui/states.tsx';
import { showHidden } from '../../../ui/visible-text.ts';
import { useAction } from '../../../ui/use-action.ts';
import {
  compareFacts,
  compareFiles,
  listBelow,
  type Compared,
  type Fact,
  type FileChange,
} from './compare.ts';
import type { FamilyNode } from './family.ts';
import { getSandbox } from './get-sandbox.ts';
import { nameOf, type LiveRecords } from './node-text.ts';

interface CompareProps {
  client: Coppice;
  live: LiveRecords;
  left: FamilyNode;
  right: FamilyNode;
  onClose: () => void;
}

/** Shows how two members of a family differ. */
export function CompareDialog({ client, live, left, right, onClose }: CompareProps) {
  const resource = useResource(
    async () => Promise.all([read(client, left), read(client, right)]),
    [client, left.id, right.id],
  );
  const names = [nameOf(left, live), nameOf(right, live)] as const;
  const canCompareFiles = isRunning(left) && isRunning(right);
  return (
    <Dialog title="Compare" size="large" onClose={onClose}>
      <Loaded resource={resource} rows={6}>
        {([first, second]) => <FactTable names={names} facts={compareFacts(first, second, Date.now())} />}
      </Loaded>
      {canCompareFiles ? (
        <FilesCompared client={client} names={names} ids={[left.id, right.id]} />
      ) : (
        <p class="soft">Files can be compared while both are running sandboxes.</p>
      )}
    </Dialog>
  );
}

async function read(client: Coppice, node: FamilyNode): Promise<Compared> {
  if (node.kind === 'snapshot') return { kind: 'snapshot', record: node.record };
  return { kind: 'sandbox', record: (await getSandbox(client, node.id)).record };
}

function isRunning(node: FamilyNode): boolean {
  return node.kind === 'sandbox' && node.record.status === 'running';
}

function FactTable({ names, facts }: { names: readonly [string, string]; facts: readonly Fact[] }) {
  const isAll = useSignal(false);
  const shown = isAll.value ? facts : facts.filter(({ isDifferent }) => isDifferent);
  const equal = facts.filter(({ isDifferent }) => !isDifferent).length;
  return (
    <>
      {equal === facts.length && <p>The records do not differ, apart from their ids.</p>}
      <div
        class="compare-scroll"
        hidden={shown.length === 0}
        tabIndex={0}
        role="region"
        aria-label="Differences of the records"
      >
        <table class="compare">
          <thead>
            <tr>
              <td />
              <th scope="col">{names[0]}</th>
              <th scope="col">{names[1]}</th>
            </tr>
          </thead>
          <tbody>
            {shown.map(({ name, left, right, isDifferent }) => (
              <tr key={name} class={isDifferent ? 'different' : ''}>
                <th scope="row">{showHidden(name)}</th>
                <td>
                  <GuestText text={left} />
                </td>
                <td>
                  <GuestText text={right} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Checkbox
        label={`Also show what is equal (${formatNumber(equal)})`}
        isChecked={isAll.value}
        onChange={(isChecked) => (isAll.value = isChecked)}
      />
    </>
  );
}

const LIMITS = { directories: 60, entries: 3000 };
const MAX_SHOWN = 300;

interface Outcome {
  changes: readonly FileChange[];
  count: number;
  isCut: boolean;
}

function FilesCompared({
  client,
  names,
  ids,
}: {
  client: Coppice;
  names: readonly [string, string];
  ids: readonly [string, string];
}) {
  const path = useSignal('/workspace');
  const outcome = useSignal<Outcome | undefined>(undefined);
  const action = useAction();
  const compare = (): void =>
    void action.run(async () => (outcome.value = await compareIn(client, ids, path.value)));
  return (
    <section class="stack">
      <h3>Files</h3>
      <form
        class="compare-form"
        onSubmit={(event) => {
          event.preventDefault();
          compare();
        }}
      >
        <TextField label="Directory" value={path.value} onValue={(value) => (path.value = value)} />
        <Button type="submit" isBusy={action.isBusy} isDisabled={!path.value.startsWith('/')}>
          Compare files
        </Button>
      </form>
      <p class="hint">
        Type, size, time and mode are compared, not the content. This counts as a use of both sandboxes.
      </p>
      {action.error !== undefined && <Failure error={new Error(action.error)} />}
      {outcome.value !== undefined && <FileChanges names={names} {...outcome.value} />}
    </section>
  );
}

async function compareIn(client: Coppice, ids: readonly [string, string], path: string): Promise<Outcome> {
  const [left, right] = await Promise.all(
    ids.map(async (id) => {
      const sandbox = await getSandbox(client, id);
      return listBelow(
        async (directory) => sandbox.listFiles(directory, { limit: LIMITS.entries }),
        path,
        LIMITS,
      );
    }),
  );
  if (left === undefined || right === undefined) throw new Error('Two sandboxes are needed.');
  return {
    changes: compareFiles(left.entries, right.entries),
    count: new Set([...left.entries.keys(), ...right.entries.keys()]).size,
    isCut: left.isCut || right.isCut,
  };
}

const TONES: Readonly<Record<FileChange['kind'], Tone>> = { added: 'good', removed: 'bad', changed: 'warn' };

function FileChanges({ names, changes, count, isCut }: Outcome & { names: readonly [string, string] }) {
  const shown = changes.slice(0, MAX_SHOWN);
  return (
    <>
      <p role="status">
        {changes.length === 0
          ? `No difference in ${formatNumber(count)} entries.`
          : `${formatNumber(changes.length)} of ${formatNumber(count)} entries differ, from ${names[0]} to ${names[1]}.`}
        {isCut && ` Only the first ${LIMITS.directories} directories were compared: choose a smaller one.`}
      </p>
      {shown.length > 0 && (
        <ul class="file-changes" tabIndex={0} aria-label="Files that differ">
          {shown.map(({ path, kind, left, right }) => (
            <li key={path}>
              <Badge tone={TONES[kind]}>{kind}</Badge>
              <span class="mono">
                <GuestText text={path} />
              </span>
              <span class="soft">{describeChange(left, right)}</span>
            </li>
          ))}
        </ul>
      )}
      {changes.length > shown.length && <p class="soft">The first {MAX_SHOWN} are shown.</p>}
    </>
  );
}

function describeChange(left: FileChange['left'], right: FileChange['right']): string {
  const only = left ?? right;
  if (left === undefined || right === undefined)
    return only === undefined || only.type === 'dir' ? 'directory' : formatBytes(only.size);
  if (left.type !== right.type) return `${left.type} → ${right.type}`;
  if (left.size !== right.size) return `${formatBytes(left.size)} → ${formatBytes(right.size)}`;
  if (left.mode !== right.mode) return `${left.mode} → ${right.mode}`;
  if (left.target !== right.target) return showHidden(`${left.target} → ${right.target}`);
  return `${formatMoment(left.mtime)} → ${formatMoment(right.mtime)}`;
}
