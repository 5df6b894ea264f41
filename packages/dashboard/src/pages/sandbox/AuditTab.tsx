import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { isReachable } from '../../service/connection.ts';
import { client, isOwner, organizationPath } from '../../service/session.ts';
import { Badge } from '../../ui/Badge.tsx';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { formatNumber } from '../../ui/format.ts';
import { toLiteral, toPython } from '../../ui/snippets.ts';
import { Failure, Skeleton } from '../../ui/states.tsx';
import '../../styles/audit.css';
import { ExportButton } from '../audit/ExportButton.tsx';
import { filterLines, isOfKind, KINDS, toLine, type Kind } from '../audit/filter-entries.ts';
import { LogTable } from '../audit/LogTable.tsx';
import { writeSandboxLog } from '../audit/log-text.ts';
import { countEntries } from '../audit/organization-sentences.ts';
import { describeSandboxEntry } from '../audit/sandbox-sentences.ts';
import { useFollowedLog } from '../audit/use-log.ts';
import { VerifyDialog } from '../audit/VerifyDialog.tsx';
import { fetchTeamSecret, verifySandboxLog } from '../audit/verify-log.ts';
import type { TabProps } from './tab-props.ts';
import { SearchField } from '../../ui/SearchField.tsx';
import { Segments, toOptions } from '../../ui/Segments.tsx';

/** The log of a sandbox, which grows while the sandbox lives. */
export function AuditTab({ sandbox, record }: TabProps) {
  const { id } = record;
  const log = useFollowedLog(
    (after, signal) => sandbox.audit({ after, signal, follow: true }),
    [id, client.value],
  );
  const search = useSignal('');
  const kind = useSignal<Kind>('all');
  const isVerifying = useSignal(false);
  const lines = useMemo(
    () => (log.entries ?? []).map((entry) => toLine(entry, describeSandboxEntry(entry))),
    [log.entries],
  );
  const shown = useMemo(
    () => filterLines(lines, { search: search.value, isWanted: (event) => isOfKind(event, kind.value) }),
    [lines, search.value, kind.value],
  );
  const path = `/sandboxes/${id}/audit`;
  return (
    <div class="stack">
      <div class="filters">
        <SearchField
          label="Search entries"
          placeholder="Search commands, paths, names"
          value={search.value}
          onValue={(value) => (search.value = value)}
        />
        <span class="soft" role="status">
          {shown.length === lines.length
            ? countEntries(lines.length)
            : `${formatNumber(shown.length)} of ${countEntries(lines.length)}`}
        </span>
        {log.isFollowing && log.entries !== undefined && <Badge tone="good">live</Badge>}
        <span class="gap" />
        <LogActions {...{ sandbox, record }} verify={() => (isVerifying.value = true)} />
      </div>
      <KindChoice kind={kind.value} choose={(next) => (kind.value = next)} />
      {log.error !== undefined && isReachable.value && <Failure error={log.error} />}
      {log.entries === undefined ? (
        log.error === undefined && <Skeleton rows={8} />
      ) : (
        <LogTable lines={shown} all={lines} path={path} />
      )}
      {isVerifying.value && (
        <Verify {...{ sandbox, record }} path={path} onClose={() => (isVerifying.value = false)} />
      )}
    </div>
  );
}

type Subject = Pick<TabProps, 'sandbox' | 'record'>;

function KindChoice({ kind, choose }: { kind: Kind; choose: (kind: Kind) => void }) {
  return (
    <div>
      <Segments label="Kind" options={toOptions(KINDS)} value={kind} onValue={choose} />
    </div>
  );
}

function LogActions({ sandbox, record: { id }, verify }: Subject & { verify: () => void }) {
  return (
    <>
      <CopyAsCode
        method="GET"
        path={`/v1/runs/${id}/audit`}
        typescript={`const sandbox = await client.sandboxes.get(${toLiteral(id)});\nfor await (const { ts, event, data } of sandbox.audit()) console.log(ts, event, data);`}
        python={`sandbox = client.sandboxes.get(${toPython(id)})\nfor entry in sandbox.audit():\n    print(entry.ts, entry.event, entry.data)`}
      />
      <ExportButton
        name={`audit-${id}.ndjson`}
        read={async () => writeSandboxLog(await Array.fromAsync(sandbox.audit()))}
      />
      <Button kind="primary" icon="check" onClick={verify}>
        Verify
      </Button>
    </>
  );
}

function Verify({ sandbox, record, path, onClose }: Subject & { path: string; onClose: () => void }) {
  const { id, teamId, auditKeyId } = record;
  const canFetch = isOwner.value && teamId !== null && auditKeyId !== null;
  return (
    <VerifyDialog
      path={path}
      needsSecret={!canFetch}
      verify={async ({ head, secret: given }) => {
        const secret = canFetch ? await fetchTeamSecret(organizationPath.value, teamId, auditKeyId) : given;
        const log = { sandboxId: id, read: () => sandbox.audit(), readHead: () => sandbox.auditHead() };
        return verifySandboxLog(log, { id: auditKeyId, secret }, head);
      }}
      onClose={onClose}
    />
  );
}
