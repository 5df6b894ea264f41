import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { CoppiceError, type Coppice } from '../../../../../sdk/src/index.ts';
import { explain } from '../../../ui/explain.ts';
import { ActionDialog } from '../../../ui/ActionDialog.tsx';
import { Badge, StateBadge } from '../../../ui/Badge.tsx';
import { Checkbox } from '../../../ui/Field.tsx';
import { formatNumber } from '../../../ui/format.ts';
import { toLiteral, toPython } from '../../../ui/snippets.ts';
import { Ago } from '../../../ui/Time.tsx';
import { findBelow, findBeside, type Family, type FamilyNode, type SandboxNode } from './family.ts';
import { getSandbox } from './get-sandbox.ts';
import { nameOf, type LiveRecords } from './node-text.ts';
import { PruneRun } from './prune-run.ts';

interface PruneProps {
  client: Coppice;
  family: Family;
  live: LiveRecords;
  node: FamilyNode;
  /** `below`: the descendants of the node; `beside`: all that is not on its branch. */
  scope: 'below' | 'beside';
  onClose: () => void;
}

/** Destroys a part of a family. It lists the sandboxes before, and what becomes of each. */
export function PruneDialog({ client, family, live, node, scope, onClose }: PruneProps) {
  const keepAncestors = useSignal(true);
  const isRunning = useSignal(false);
  const run = useRef(new PruneRun((id) => destroy(client, id), explain)).current;
  // The family changes while its members end: what was confirmed is destroyed, and nothing else.
  const confirmed = useRef<readonly SandboxNode[] | undefined>(undefined);
  const planned =
    scope === 'below' ? findBelow(node) : findBeside(family, node, { keepAncestors: keepAncestors.value });
  const listed = confirmed.current ?? planned;
  const ids = listed.map(({ id }) => id);
  const name = nameOf(node, live);
  return (
    <ActionDialog
      title={scope === 'below' ? `Destroy all below ${name}` : `Keep only the branch of ${name}`}
      verb={confirmed.current === undefined ? `Destroy ${count(listed.length)}` : 'Try again'}
      kind="danger"
      size="large"
      isDisabled={listed.length === 0}
      done={`${count(listed.length)} destroyed.`}
      act={async () => {
        confirmed.current = listed;
        isRunning.value = true;
        await run.run(ids).finally(() => (isRunning.value = false));
      }}
      onClose={onClose}
      code={ids.length === 0 ? undefined : pruneCode(ids)}
    >
      <p>
        {scope === 'below'
          ? 'These sandboxes were forked or restored from it, directly or over others. '
          : 'These sandboxes are not on its branch: it and its descendants stay. '}
        They end, and everything in them is lost. Snapshots stay.
      </p>
      {scope === 'beside' && (
        <Checkbox
          label="Keep its ancestors as well"
          isChecked={keepAncestors.value}
          onChange={(isChecked) => {
            if (!isRunning.value && confirmed.current === undefined) keepAncestors.value = isChecked;
          }}
        />
      )}
      <PruneList nodes={listed} live={live} run={run} />
    </ActionDialog>
  );
}

function PruneList({
  nodes,
  live,
  run,
}: {
  nodes: readonly SandboxNode[];
  live: LiveRecords;
  run: PruneRun;
}) {
  if (nodes.length === 0) return <p class="soft">There is nothing to destroy.</p>;
  return (
    <ul class="prune" aria-label="Sandboxes to destroy" tabIndex={0}>
      {nodes.map((node) => (
        <li key={node.id}>
          <span class="prune-name">
            <b>{nameOf(node, live)}</b>
            {nameOf(node, live) !== node.id && <span class="soft mono"> {node.id}</span>}
          </span>
          <span class="soft">
            <Ago at={node.createdAt} />
          </span>
          <PruneBadge node={node} live={live} run={run} />
        </li>
      ))}
    </ul>
  );
}

function PruneBadge({ node, live, run }: { node: SandboxNode; live: LiveRecords; run: PruneRun }) {
  const now = run.stateOf(node.id);
  if (now.state === 'failed')
    return (
      <>
        <Badge tone="bad">failed</Badge>
        <span class="prune-reason fault">{now.reason}</span>
      </>
    );
  if (now.state === 'busy') return <Badge tone="busy">destroying</Badge>;
  if (now.state === 'done') return <Badge>destroyed</Badge>;
  return <StateBadge {...(live.get(node.id) ?? node.record)} />;
}

async function destroy(client: Coppice, id: string): Promise<void> {
  const sandbox = await getSandbox(client, id);
  if (sandbox.record.endedAt !== null) return;
  try {
    await sandbox.destroy();
  } catch (error) {
    // It may have ended on its own in the meantime, which is as good.
    if (!(error instanceof CoppiceError) || error.code !== 'invalid_state') throw error;
    if ((await sandbox.info()).endedAt === null) throw error;
  }
}

function pruneCode(ids: readonly string[]) {
  return {
    method: 'DELETE',
    // curl sends a request for each of the names in braces.
    path: ids.length === 1 ? `/v1/runs/${ids[0]}` : `/v1/runs/{${ids.join(',')}}`,
    typescript: `for (const id of ${toLiteral(ids)}) await (await client.sandboxes.get(id))?.destroy();`,
    python: `for id in ${toPython(ids)}:\n    client.sandboxes.get(id).destroy()`,
  };
}

function count(number: number): string {
  return number === 1 ? '1 sandbox' : `${formatNumber(number)} sandboxes`;
}
