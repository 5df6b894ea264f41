import { useComputed, useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import { useMemo } from 'preact/hooks';
import { useNow } from '../../service/resource.ts';
import { sandboxes } from '../../service/sandboxes.ts';
import { client as currentClient } from '../../service/session.ts';
import '../../styles/lineage.css';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { formatNumber } from '../../ui/format.ts';
import { toPython } from '../../ui/snippets.ts';
import { Empty, Loaded } from '../../ui/states.tsx';
import { useFamilyCosts } from './lineage/costs.ts';
import { buildFamily, type Family } from './lineage/family.ts';
import { FamilyTree } from './lineage/FamilyTree.tsx';
import { layOut } from './lineage/layout.ts';
import { NodePanel } from './lineage/NodePanel.tsx';
import { OpenDialog } from './lineage/OpenDialog.tsx';
import { nameOf, type LiveRecords } from './lineage/node-text.ts';
import { useChoice } from './lineage/use-choice.ts';
import { useFamily, type FamilyRecords } from './lineage/use-family.ts';
import type { TabProps } from './tab-props.ts';
import { Segments } from '../../ui/Segments.tsx';

/** Ages and costs in the tree grow at this pace. */
const TICK_MS = 5000;

/** The family of a sandbox as a tree: forks, snapshots and restored sandboxes, to look at and to act on. */
export function LineageTab({ record }: TabProps) {
  const client = currentClient.value;
  const resource = useFamily(client, record.id);
  return (
    <Loaded resource={resource} rows={6}>
      {(records) => <Lineage records={records} currentId={record.id} reload={resource.reload} />}
    </Loaded>
  );
}

interface LineageProps {
  records: FamilyRecords;
  currentId: string;
  reload: () => void;
}

function Lineage({ records, currentId, reload }: LineageProps) {
  const client = currentClient.value;
  const now = useNow(TICK_MS).value;
  const closed = useSignal<ReadonlySet<string>>(new Set());
  const isLiveOnly = useSignal(false);
  const { route } = useLocation();
  const live = useLiveRecords();
  const costs = useFamilyCosts(client, records.tree);
  const family = useMemo(() => buildFamily({ sandboxes: records.tree.nodes, ...records }), [records]);
  const rows = useMemo(
    () => layOut(family, { closed: closed.value, isLiveOnly: isLiveOnly.value, currentId }),
    [family, closed.value, isLiveOnly.value, currentId],
  );
  const choice = useChoice(family, currentId);
  if (client === undefined) return null;
  const { selected, compared, opened } = choice;
  const view = { rows, live, costs, now, currentId, selectedId: selected?.id };
  return (
    <>
      <Toolbar
        family={family}
        currentId={currentId}
        isLiveOnly={isLiveOnly}
        isTruncated={records.tree.truncated}
      />
      {compared !== undefined && (
        <CompareHint name={nameOf(compared, live)} onCancel={choice.stopComparing} />
      )}
      <div class={`family-layout${selected === undefined ? '' : ' has-panel'}`}>
        <div class="stack">
          <FamilyTree
            {...view}
            onSelect={choice.select}
            onPick={choice.pick}
            onEnter={(id) => {
              const isOther = family.nodes.get(id)?.kind === 'sandbox' && id !== currentId;
              if (!choice.pick(id) && isOther) route(`/sandboxes/${id}/lineage`);
            }}
            onToggle={(id) => (closed.value = toggle(closed.value, id))}
          />
          {family.nodes.size === 1 && <Alone />}
        </div>
        {selected !== undefined && (
          <NodePanel
            node={selected}
            {...{ client, family, live, costs, now, currentId }}
            onFamily={choice.act}
            onSandbox={(node, action) => choice.open({ action, node })}
            onSnapshot={(node, action) => choice.open({ action, node })}
            onClose={() => choice.select(undefined)}
          />
        )}
      </div>
      {opened !== undefined && (
        <OpenDialog
          {...{ client, family, live, reload }}
          opened={opened}
          onClose={() => choice.open(undefined)}
        />
      )}
    </>
  );
}

function CompareHint({ name, onCancel }: { name: string; onCancel: () => void }) {
  return (
    <div class="compare-hint" role="status">
      <span>Pick what to compare {name} with: by a click, or by the arrow keys and Enter.</span>
      <Button onClick={onCancel}>Cancel</Button>
    </div>
  );
}

function useLiveRecords(): LiveRecords {
  return useComputed(() => new Map((sandboxes.value ?? []).map((sandbox) => [sandbox.id, sandbox]))).value;
}

function toggle(closed: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const next = new Set(closed);
  if (!next.delete(id)) next.add(id);
  return next;
}

function Toolbar({
  family,
  currentId,
  isLiveOnly,
  isTruncated,
}: {
  family: Family;
  currentId: string;
  isLiveOnly: { value: boolean };
  isTruncated: boolean;
}) {
  const all = Array.from(family.nodes.values());
  const snapshots = all.filter(({ kind }) => kind === 'snapshot').length;
  const running = all.filter((node) => node.kind === 'sandbox' && node.record.endedAt === null).length;
  const ended = all.length - snapshots - running;
  return (
    <div class="filters">
      <Segments
        label="Sandboxes that are shown"
        options={[
          [false, 'all'],
          [true, 'live'],
        ]}
        value={isLiveOnly.value}
        onValue={(isOnly) => (isLiveOnly.value = isOnly)}
      />
      <span class="soft">
        {formatNumber(running)} live · {formatNumber(snapshots)} {snapshots === 1 ? 'snapshot' : 'snapshots'}{' '}
        · {formatNumber(ended)} ended
      </span>
      {isTruncated && <span class="soft">The family has more members: the first 1000 are shown.</span>}
      <span class="gap" />
      <CopyAsCode
        method="GET"
        path={`/v1/runs/${currentId}/tree`}
        typescript={`const sandbox = await client.sandboxes.get('${currentId}');\nfor (const { id, parentId, status } of (await sandbox.tree()).nodes) console.log(parentId, id, status);`}
        python={`sandbox = client.sandboxes.get(${toPython(currentId)})\nfor node in sandbox.tree().nodes:\n    print(node.parent_id, node.id, node.status)`}
      />
    </div>
  );
}

function Alone() {
  return (
    <Empty icon="fork" title="This sandbox is alone">
      Fork it to try several ways from here, or take a snapshot to return to. Both appear above.
    </Empty>
  );
}
