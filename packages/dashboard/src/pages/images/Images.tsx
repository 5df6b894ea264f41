import { useRoute } from 'preact-iso';
import '../../styles/resources.css';
import { Page } from '../../ui/Page.tsx';
import { Tabs } from '../../ui/Tabs.tsx';
import { BuildList } from './BuildList.tsx';
import { PreparedImages } from './PreparedImages.tsx';
import { RegistryList } from './RegistryList.tsx';

const TABS = [
  { id: 'prepared', label: 'Images', href: '/images' },
  { id: 'builds', label: 'Builds', href: '/images/builds' },
  { id: 'registries', label: 'Registries', href: '/images/registries' },
] as const;

/** `/images/:part?` */
export function Images() {
  const { part = 'prepared' } = useRoute().params;
  return (
    <Page title="Images" lead="The file systems that sandboxes begin with.">
      <Tabs label="Parts" tabs={TABS} current={part} />
      {part === 'builds' ? <BuildList /> : part === 'registries' ? <RegistryList /> : <PreparedImages />}
    </Page>
  );
}
