import { useSignal } from '@preact/signals';
import type { AuditSecretRecord } from '../../../../contract/src/accounts/team-keys.ts';
import { callAccount } from '../../service/account-calls.ts';
import { useResource } from '../../service/resource.ts';
import { isOwner } from '../../service/session.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Badge } from '../../ui/Badge.tsx';
import { Button } from '../../ui/Button.tsx';
import { SecretValue } from '../../ui/SecretValue.tsx';
import { Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { useAction } from '../../ui/use-action.ts';

interface AuditSecretsProps {
  /** Explains the secrets. */
  lead: string;
  path: string;
  /** The effect of a rotation. */
  rotation: string;
}

/** The secrets that key audit logs. Owners see and rotate them, members of the team see their ids. */
export function AuditSecrets({ lead, path, rotation }: AuditSecretsProps) {
  const secrets = useResource((): Promise<AuditSecretRecord[]> => callAccount('GET', path), [path]);
  const isRotating = useSignal(false);
  return (
    <>
      <p class="soft">
        {lead} {!isOwner.value && 'Owners of the organization can show and rotate them.'}
      </p>
      <Loaded resource={secrets} rows={1}>
        {(list) =>
          list.length === 0 ? (
            <p class="quiet-note">There is none yet. The first log adds one.</p>
          ) : (
            <ul class="secrets-list">
              {list.map((secret, index) => (
                <SecretRow key={secret.id} secret={secret} path={path} isNewest={index === 0} />
              ))}
            </ul>
          )
        }
      </Loaded>
      {isOwner.value && (
        <div>
          <Button icon="refresh" onClick={() => (isRotating.value = true)}>
            Rotate
          </Button>
        </div>
      )}
      {isRotating.value && (
        <ActionDialog
          title="Rotate the secret?"
          verb="Rotate"
          done="There is a new secret."
          act={async () => {
            await callAccount('POST', path);
            secrets.reload();
          }}
          onClose={() => (isRotating.value = false)}
        >
          <p>{rotation}</p>
        </ActionDialog>
      )}
    </>
  );
}

function SecretRow({
  secret: { id, created_at: at },
  path,
  isNewest,
}: {
  secret: AuditSecretRecord;
  path: string;
  isNewest: boolean;
}) {
  const value = useSignal<string | undefined>(undefined);
  const action = useAction();
  const show = (): Promise<boolean> =>
    action.run(async () => {
      value.value = (await callAccount<{ secret: string }>('GET', `${path}/${id}`)).secret;
    });
  return (
    <li>
      <div class="row">
        <span class="mono grow">{id}</span>
        {isNewest && <Badge tone="good">in use</Badge>}
        <span class="soft">
          <Ago at={at} />
        </span>
        {isOwner.value && value.value === undefined && (
          <Button
            isBusy={action.isBusy}
            title="The audit log of the organization records that you read it"
            onClick={() => void show()}
          >
            Show
          </Button>
        )}
      </div>
      {value.value !== undefined && <SecretValue value={value.value} name="the secret" isShown />}
      {action.error !== undefined && (
        <p class="fault" role="alert">
          {action.error}
        </p>
      )}
    </li>
  );
}
