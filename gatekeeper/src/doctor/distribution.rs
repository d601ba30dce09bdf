//! The distribution of this machine, from os-release, and its commands to install and configure things.

/// Distributions with the same commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Debian,
    Fedora,
    Suse,
    Arch,
    Alpine,
    Nix,
    Gentoo,
    Unknown,
}

pub struct Distribution {
    family: Family,
    root: bool,
}

impl Distribution {
    pub fn of_this_machine() -> Distribution {
        let read = |path| std::fs::read_to_string(path).ok();
        let text = read("/etc/os-release").or_else(|| read("/usr/lib/os-release")).unwrap_or_default();
        Distribution { family: family(&text), root: rustix::process::geteuid().is_root() }
    }

    fn sudo(&self, command: &str) -> String {
        if self.root { command.to_owned() } else { format!("sudo {command}") }
    }

    /// The command that installs a package. The packages that we need have the same name in every distribution.
    pub fn install(&self, package: &str) -> String {
        match self.family {
            Family::Debian => self.sudo(&format!("apt-get install -y {package}")),
            Family::Fedora => self.sudo(&format!("dnf install -y {package}")),
            Family::Suse => self.sudo(&format!("zypper install -y {package}")),
            Family::Arch => self.sudo(&format!("pacman -S --noconfirm {package}")),
            Family::Alpine => self.sudo(&format!("apk add {package}")),
            Family::Gentoo => self.sudo(&format!("emerge sys-apps/{package}")),
            Family::Nix => format!("add pkgs.{package} to environment.systemPackages and rebuild"),
            Family::Unknown => format!("install the package {package}"),
        }
    }

    /// Sets a sysctl now and at every boot.
    pub fn sysctl(&self, setting: &str) -> String {
        let name = "/etc/sysctl.d/60-gatekeeper.conf";
        let tee = if self.root { format!("tee {name}") } else { format!("sudo tee {name}") };
        match self.family {
            Family::Nix => {
                let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
                format!("set boot.kernel.sysctl.\"{key}\" = {value}; and rebuild")
            }
            _ => format!("echo {setting} | {tee} && {}", self.sudo("sysctl --system")),
        }
    }

    /// Adds a parameter to the kernel command line.
    pub fn boot_parameter(&self, parameter: &str) -> String {
        match self.family {
            Family::Debian => format!(
                "add {parameter} to GRUB_CMDLINE_LINUX in /etc/default/grub, then {} and reboot",
                self.sudo("update-grub")
            ),
            Family::Fedora => {
                format!("{} and reboot", self.sudo(&format!("grubby --update-kernel=ALL --args=\"{parameter}\"")))
            }
            Family::Nix => format!("add \"{parameter}\" to boot.kernelParams, rebuild and reboot"),
            _ => format!("boot the kernel with {parameter}"),
        }
    }

    /// Allows user namespaces for one program, if AppArmor denies them by default.
    pub fn apparmor_profile(&self, program: &str) -> String {
        let name = "/etc/apparmor.d/gatekeeper";
        let profile = format!(
            "abi <abi/4.0>, include <tunables/global> profile gatekeeper {program} flags=(unconfined) {{ userns, }}"
        );
        let tee = if self.root { format!("tee {name}") } else { format!("sudo tee {name}") };
        format!("echo '{profile}' | {tee} && {}", self.sudo(&format!("apparmor_parser -r {name}")))
    }
}

fn family(os_release: &str) -> Family {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
    };
    let words = format!("{} {}", value("ID"), value("ID_LIKE"));
    let known = words.split_whitespace().find_map(|word| match word {
        "debian" | "ubuntu" => Some(Family::Debian),
        "fedora" | "rhel" | "centos" | "amzn" => Some(Family::Fedora),
        "suse" | "opensuse" | "sles" | "opensuse-leap" | "opensuse-tumbleweed" => Some(Family::Suse),
        "arch" => Some(Family::Arch),
        "alpine" => Some(Family::Alpine),
        "nixos" => Some(Family::Nix),
        "gentoo" => Some(Family::Gentoo),
        _ => None,
    });
    known.unwrap_or(Family::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_family_is_found_by_id_or_id_like() {
        assert_eq!(family("ID=debian\nVERSION_ID=\"12\"\n"), Family::Debian);
        assert_eq!(family("NAME=\"Pop!_OS\"\nID=pop\nID_LIKE=\"ubuntu debian\"\n"), Family::Debian);
        assert_eq!(family("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"), Family::Fedora);
        assert_eq!(family("ID=alpine\n"), Family::Alpine);
        assert_eq!(family("ID=manjaro\nID_LIKE=arch\n"), Family::Arch);
        assert_eq!(family(""), Family::Unknown);
    }

    #[test]
    fn root_needs_no_sudo() {
        let with = |root| Distribution { family: Family::Debian, root }.install("bubblewrap");
        assert_eq!(with(true), "apt-get install -y bubblewrap");
        assert_eq!(with(false), "sudo apt-get install -y bubblewrap");
    }
}
