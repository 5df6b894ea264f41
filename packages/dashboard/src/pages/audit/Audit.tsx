import { useLocation } from 'preact-iso';
import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { MemberRecord } from '../../../../contract/src/accounts/organizations.ts';
import { parseOrganizationAuditLine, type OrganizationAuditEntry } from '../../../../sdk/src/index.ts';
import { callAccount, fetchText } from '../../service/account-calls.ts';
import { useResource } from '../../service/resource.ts';
import { isOwner, organizationPath, place, type TeamInfo } from '../../service/session.ts';
import { Button, ButtonLink, IconButton } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { Page } from '../../ui/Page.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import '../../styles/audit.css';
import '../../styles/organization.css';
import { AuditSecrets } from '../keys/AuditSecrets.tsx';
import { ExportButton } from './ExportButton.tsx';
import { filterLines, rangeLimits, toLine, type Line, type Range } from './filter-entries.ts';
import { LogTable } from './LogTable.tsx';
import { readLines } from './log-text.ts';
import { gatherNames } from './names.ts';
import { OrganizationFilters } from './OrganizationFilters.tsx';
import { describeActor, describeOrganizationEntry } from './organization-sentences.ts';
import { toText } from './sentence.ts';
import { useLog } from './use-log.ts';
import { VerifyDialog } from './VerifyDialog.tsx';
import { verifyOrganizationLog } from './verify-log.ts';

const PATH = '/audit';

/** `/audit`: the log of the organization. */
export function Audit() {
  const organization = place.value?.organization;
  if (organization === undefined) return null;
  return isOwner.value ? <OwnerAudit key={organization.id} id={organization.id} /> : <OnlyForOwners />;
}

function OnlyForOwners() {
  return (
    <Page title="Audit log">
      <Empty
        icon="lock"
        title="Only owners read this log"
        action={<ButtonLink href="/sandboxes">To the sandboxes</ButtonLink>}
      >
        It records keys, people, teams, sign-ins and secrets of the whole organization, with the addresses of
        their clients. Ask an owner for an export. The log of each sandbox is on the page of the sandbox.
      </Empty>
    </Page>
  );
}

function OwnerAudit({ id }: { id: string }) {
  const path = organizationPath.value;
  const asked = useSignal<'verify' | 'secrets' | undefined>(undefined);
  const close = (): void => void (asked.value = undefined);
  const log = useLog(
    async (after): Promise<OrganizationAuditEntry[]> =>
      readLines(await fetchText('GET', `${path}/audit?after=${after}`), parseOrganizationAuditLine),
    [path],
  );
  const members = useResource((): Promise<MemberRecord[]> => callAccount('GET', `${path}/members`), [path]);
  return (
    <Page
      title="Audit log"
      lead="Keys, people, secrets, limits and sign-ins of the organization"
      actions={
        <>
          <CopyAsCode
            method="GET"
            path="/v1/organization/audit"
            typescript={
              'for await (const { ts, event, actor } of client.organization.audit()) console.log(ts, event, actor);'
            }
            python={
              'for entry in client.organization.audit():\n    print(entry.ts, entry.event, entry.actor)'
            }
          />
          <IconButton icon="refresh" label="Refresh" isDisabled={log.isLoading} onClick={log.reload} />
          <Button icon="key" onClick={() => (asked.value = 'secrets')}>
            Secrets
          </Button>
          <ExportButton name={`audit-${id}.ndjson`} read={() => fetchText('GET', `${path}/audit`)} />
          <Button kind="primary" icon="check" onClick={() => (asked.value = 'verify')}>
            Verify
          </Button>
        </>
      }
    >
      <Loaded resource={log} rows={8}>
        {(entries) => <Entries entries={entries} members={members.value ?? []} />}
      </Loaded>
      {asked.value === 'secrets' && (
        <Dialog title="Secrets of this log" size="large" onClose={close}>
          <AuditSecrets
            lead="They key its entries. To verify an export without the service, all of them are needed."
            path={`${path}/audit-secrets`}
            rotation="Entries from now on are keyed by a new secret. The old secrets stay: earlier entries need them."
          />
        </Dialog>
      )}
      {asked.value === 'verify' && (
        <VerifyDialog
          path={PATH}
          needsSecret={false}
          verify={async ({ head }) => {
            const result = await verifyOrganizationLog(path, id, head);
            // Reading the secrets has added entries.
            log.reload();
            return result;
          }}
          onClose={close}
        />
      )}
    </Page>
  );
}

type OrganizationLine = Line<OrganizationAuditEntry>;

function Entries({
  entries,
  members,
}: {
  entries: readonly OrganizationAuditEntry[];
  members: readonly MemberRecord[];
}) {
  const { query } = useLocation();
  const search = useSignal(query['q'] ?? '');
  const event = useSignal(query['event'] ?? '');
  const actor = useSignal(query['actor'] ?? '');
  const range = useSignal<Range>('all');
  const from = useSignal('');
  const to = useSignal('');
  const teams = place.value?.organization.teams ?? [];
  const lines = useMemo(() => describeEntries(entries, members, teams), [entries, members, teams]);
  const shown = useMemo(() => {
    const wanted = event.value;
    return filterLines(lines, {
      search: search.value,
      isWanted: wanted === '' ? undefined : (name) => name === wanted || name.startsWith(`${wanted}.`),
      actor: actor.value,
      ...rangeLimits(range.value, { from: from.value, to: to.value, now: Date.now() }),
    });
  }, [lines, search.value, event.value, actor.value, range.value, from.value, to.value]);
  return (
    <>
      <OrganizationFilters
        lines={lines}
        shown={shown.length}
        fields={{ search, event, actor, range, from, to }}
      />
      <LogTable lines={shown} all={lines} path={PATH} facts={listFacts} />
    </>
  );
}

function listFacts({ actor, auditKeyId }: OrganizationAuditEntry): readonly (readonly [string, string])[] {
  const { type, id, address, ...others } = actor;
  const facts = [['Actor', type], ['Actor id', id], ['Address', address], ...Object.entries(others)] as const;
  const known = facts.filter(([, value]) => value !== null && value !== undefined);
  return [...known.map(([name, value]) => [name, toText(value)] as const), ['Secret', auditKeyId]];
}

function describeEntries(
  entries: readonly OrganizationAuditEntry[],
  members: readonly MemberRecord[],
  teams: readonly TeamInfo[],
): readonly OrganizationLine[] {
  const nameOf = gatherNames(entries, [...teams, ...members]);
  return entries.map((entry) => {
    const name = describeActor(entry.actor, nameOf);
    const { type, id, address } = entry.actor;
    const actorId = typeof id === 'string' ? id : toText(type);
    return toLine(entry, describeOrganizationEntry(entry, nameOf), {
      id: actorId,
      name,
      address: toText(address),
    });
  });
}
