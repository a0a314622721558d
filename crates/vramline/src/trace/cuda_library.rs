//! Libraries that call NVIDIA's driver, by the names that people know them by.

use crate::event::Framework;

/// A library that calls the driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaLibrary {
    /// Its name: `cuBLAS`, `PyTorch`; the name of its file where it is not a known one.
    pub name: String,
    /// Whose it is.
    pub owner: LibraryOwner,
}

/// Whose library it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LibraryOwner {
    /// A framework that Vramline knows, which has a pool.
    Framework,
    /// A library that others call: of NVIDIA, or a compiler of kernels.
    Library,
    /// Whatever else the program loads: its own extensions, CuPy.
    Program,
    /// The driver does not say who called it.
    Unknown,
}

use LibraryOwner::{Library, Program};

/// The beginning of a file's name without `lib`, and the library. The first that fits counts.
const FILES: [(&str, &str, LibraryOwner); 42] = [
    ("cublasLt", "cuBLAS", Library),
    ("cublas", "cuBLAS", Library),
    ("nvblas", "cuBLAS", Library),
    ("cudnn", "cuDNN", Library),
    ("cusolver", "cuSOLVER", Library),
    ("cufft", "cuFFT", Library),
    ("curand", "cuRAND", Library),
    ("cusparse", "cuSPARSE", Library),
    ("cutensor", "cuTENSOR", Library),
    ("nccl", "NCCL", Library),
    ("nvshmem", "NVSHMEM", Library),
    ("nvrtc", "NVRTC", Library),
    ("nvJitLink", "nvJitLink", Library),
    ("cupti", "CUPTI", Library),
    ("nvinfer", "TensorRT", Library),
    ("npp", "NPP", Library),
    ("nvjpeg", "nvJPEG", Library),
    ("dali", "DALI", Library),
    ("triton", "Triton", Library),
    ("__triton_launcher", "Triton", Library),
    ("cuda_utils", "Triton", Library),
    ("transformer_engine", "Transformer Engine", Library),
    ("c10", "PyTorch", LibraryOwner::Framework),
    ("torch", "PyTorch", LibraryOwner::Framework),
    ("caffe2", "PyTorch", LibraryOwner::Framework),
    ("xla_cuda_plugin", "JAX", LibraryOwner::Framework),
    ("xla_extension", "JAX", LibraryOwner::Framework),
    ("jax_common", "JAX", LibraryOwner::Framework),
    ("jaxlib", "JAX", LibraryOwner::Framework),
    ("_versions.", "JAX", LibraryOwner::Framework),
    ("tensorflow", "TensorFlow", LibraryOwner::Framework),
    ("_pywrap_tensorflow", "TensorFlow", LibraryOwner::Framework),
    ("bitsandbytes", "bitsandbytes", Program),
    ("flash_attn", "flash-attn", Program),
    ("cudf", "cuDF", Program),
    ("rmm", "RMM", Program),
    ("cuml", "cuML", Program),
    ("gomp", "OpenMP", Program),
    ("cuda.", "CUDA", Library),
    ("cudart", "CUDA", Library),
    ("_ctypes", "Python (ctypes)", Program),
    ("ffi.", "Python (ctypes)", Program),
];

/// A folder of a package, and the library: for packages of many small files.
const FOLDERS: [(&str, &str, LibraryOwner); 9] = [
    ("/cupy/", "CuPy", Program),
    ("/cupy_backends/", "CuPy", Program),
    ("/pycuda/", "PyCUDA", Program),
    ("/numba_cuda/", "Numba", Program),
    ("/cuda/bindings/", "cuda-python", Program),
    ("/triton/", "Triton", Library),
    ("/jax_cuda", "JAX", LibraryOwner::Framework),
    ("/jaxlib/", "JAX", LibraryOwner::Framework),
    ("/flash_attn/", "flash-attn", Program),
];

impl CudaLibrary {
    /// The library of a file.
    #[must_use]
    pub fn of(path: Option<&str>) -> CudaLibrary {
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            return CudaLibrary { name: "an unknown library".to_owned(), owner: LibraryOwner::Unknown };
        };
        if let Some(&(_, name, owner)) = known(path) {
            return CudaLibrary { name: name.to_owned(), owner };
        }
        let file = path.rsplit('/').next().unwrap_or(path);
        let name = file.split_once(".so").map_or(file, |(name, _)| name);
        CudaLibrary { name: name.to_owned(), owner: Program }
    }

    /// Whether the library of a file is one that everybody knows.
    #[must_use]
    pub fn is_known(path: &str) -> bool {
        known(path).is_some()
    }

    /// Whether its name is one that everybody knows.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.owner == LibraryOwner::Unknown
            || FILES.iter().chain(&FOLDERS).any(|(_, name, _)| *name == self.name)
    }

    /// Whether it belongs to this framework.
    #[must_use]
    pub fn is_of(&self, framework: Framework) -> bool {
        self.owner == LibraryOwner::Framework && self.name == framework.title()
    }
}

fn known(path: &str) -> Option<&'static (&'static str, &'static str, LibraryOwner)> {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.strip_prefix("lib").unwrap_or(file);
    let by_folder = FOLDERS.iter().find(|(folder, ..)| path.contains(folder));
    by_folder.or_else(|| FILES.iter().find(|(start, ..)| stem.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_names_that_people_know() {
        let name = |path| CudaLibrary::of(Some(path)).name;
        assert_eq!(name("/site-packages/nvidia/cu13/lib/libcublasLt.so.13"), "cuBLAS");
        assert_eq!(name("/site-packages/nvidia/cudnn/lib/libcudnn_graph.so.9"), "cuDNN");
        assert_eq!(name("/site-packages/torch/lib/libc10_cuda.so"), "PyTorch");
        assert_eq!(name("/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so"), "JAX");
        assert_eq!(
            name("/site-packages/cupy_backends/cuda/api/runtime.cpython-312-x86_64-linux-gnu.so"),
            "CuPy"
        );
        assert_eq!(
            name("/job/my_kernels.cpython-312-x86_64-linux-gnu.so"),
            "my_kernels.cpython-312-x86_64-linux-gnu"
        );
        assert_eq!(CudaLibrary::of(None).owner, LibraryOwner::Unknown);
        assert!(CudaLibrary::of(Some("libtorch_cuda.so")).is_of(Framework::PyTorch));
        assert!(!CudaLibrary::of(Some("libcublas.so.13")).is_of(Framework::PyTorch));
    }
}
