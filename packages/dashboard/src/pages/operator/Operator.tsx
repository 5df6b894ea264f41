import type { HostRecord, OperatedOrganization } from '../../../../contract/src/accounts/operator.ts';
import { callAccount, listAccount } from '../../service/account-calls.ts';
import { useResource } from '../../service/resource.ts';
import { isOperator } from '../../service/session.ts';
import { Button } from '../../ui/Button.tsx';
import { Page } from '../../ui/Page.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { HostCards } from './HostCards.tsx';
import { OperatedOrganizations } from './OperatedOrganizations.tsx';
import '../../styles/operator.css';

/** For owners of the first organization: the host, and all organizations. */
export function Operator() {
  if (isOperator.value) return <Operated />;
  return (
    <Page title="Operator">
      <Empty icon="lock" title="You do not operate this service">
        Owners of its first organization see its machines and all organizations here.
      </Empty>
    </Page>
  );
}

function Operated() {
  const host = useResource(() => callAccount<HostRecord>('GET', '/operator/host'), []);
  const list = useResource(() => listAccount<OperatedOrganization>('/operator/organizations'), []);
  const readAgain = (): void => {
    host.reload();
    list.reload();
  };
  return (
    <Page
      title="Operator"
      lead="The machines of this service, and its organizations."
      actions={
        <Button icon="refresh" isBusy={host.isLoading || list.isLoading} onClick={readAgain}>
          Read again
        </Button>
      }
    >
      <Loaded resource={host}>{(record) => <HostCards record={record} />}</Loaded>
      <OperatedOrganizations list={list} />
    </Page>
  );
}
